"""Draw the paper's figure of examples from the kept counter of research/vqa_human.py: boxes, A, D, C, count, answers.

    python research/vqa_human_examples.py ../shared/data runs/human docs/results/vqa/figures/examples.svg

The questions are not chosen by hand: for each true count from 1 to 6, the one whose id has the smallest SHA-256.
"""

import argparse
import hashlib
from pathlib import Path

from vqa_human_data import Experiment, Learned

from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.figures import EXAMPLE_COUNTS, draw_examples, explained
from tallybox.vqa.scoring import true_count


def main() -> None:
    """Draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--prepared", type=Path, help="the prepared data, if not in the folder of the runs")
    given = parser.parse_args()
    model, checkpoint = load_model(given.runs / "counter-0")
    experiment = Experiment(given.data, given.prepared or given.runs / "prepared", "final")
    learned = experiment.learned_by(Learned())
    questions, records = experiment.scored_by(Learned(), learned), experiment.scored.records
    by_digest = sorted(records, key=lambda one: hashlib.sha256(str(one.question_id).encode()).hexdigest(), reverse=True)
    of_count = {true_count(one): one.question_id for one in by_digest if one.counts}
    chosen = [of_count[count] for count in EXAMPLE_COUNTS]
    draw_examples(explained(model, checkpoint, questions, learned.store, records, chosen), given.out)


if __name__ == "__main__":
    main()
