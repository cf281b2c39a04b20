"""How probable the model of `tallybox ask` thinks its answers are, and how often they are right.

    python research/ask_confidence.py runs/ask/prepared       # what research/ask_model.py wrote

Prints the tables of docs/results/log.md, from the questions about the 1,000 validation photos; half a minute.
"""

import argparse
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from ask_model import logits_of
from calibration import calibration_error
from numpy.typing import NDArray
from written_questions import WRITTEN_FROM

from tallybox.vqa.answer import SHIPPED_MODEL
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import open_pairs, open_records
from tallybox.vqa.data.vocabulary import Vocabulary
from tallybox.vqa.prediction import open_for_model
from tallybox.vqa.scoring import all_scores

EDGES = (0, 0.25, 0.5, 0.75, 1)
AGREEING = 3  # people, for an answer to be right
FIGURES = ("yes/no", "number", "other", "all", "count", "pair_count", "count_mae")


def main() -> None:
    """Print how often answers of each probability are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    prepared = parser.parse_args().prepared
    records = open_records(prepared, "val")
    model, checkpoint = load_model(SHIPPED_MODEL)
    vocabulary = Vocabulary(checkpoint.words, checkpoint.answers)
    logits = logits_of(model, *open_for_model(checkpoint, prepared, "val"))
    probabilities = (logits / checkpoint.temperature).softmax(-1).numpy()
    probable = probabilities.max(1)
    answers = [vocabulary.answers[index] for index in probabilities.argmax(1)]
    right = np.array(
        [(one.answers or ()).count(answer) >= AGREEING for one, answer in zip(records, answers, strict=True)]
    )
    is_written = np.array([record.question_id >= WRITTEN_FROM for record in records])
    groups = {
        "all": np.ones(len(records), bool),
        "of people and templates": ~is_written,
        "written": is_written,
    }
    predictions = {one.question_id: answer for one, answer in zip(records, answers, strict=True)}
    print_scores(groups, records, predictions, open_pairs(prepared, "val"))
    which = np.digitize(probable, EDGES[1:-1])
    print("\n| probability | answers | mean probability | right | calibration error |\n|---|---:|---:|---:|---:|")
    for index, (low, high) in enumerate(pairwise(EDGES)):
        print(f"| {low:.0%} to {high:.0%} | {_row(which == index, probable, right)} |".replace("%", " %"))
    unknown = np.array([not all(vocabulary.encode_question(record.text)) for record in records])
    for name, chosen in (*groups.items(), ("with a word that it does not know", unknown)):
        print(f"| {name} | {_row(chosen, probable, right)} |")


def print_scores(
    groups: Mapping[str, NDArray[np.bool_]],
    records: list[QuestionRecord],
    predictions: dict[int, str],
    pairs: NDArray[np.int64],
) -> None:
    """Print the scores of each group of questions."""
    print(f"| questions | {' | '.join(FIGURES)} |\n|---|{'---:|' * len(FIGURES)}")
    for name, chosen in groups.items():
        some = [record for record, is_chosen in zip(records, chosen, strict=True) if is_chosen]
        ids = [record.question_id for record in some]
        found = all_scores({one: predictions[one] for one in ids}, some, pairs[np.isin(pairs, ids).all(1)])
        cells = " | ".join(f"{found[key]:.2f}" if key in found else "–" for key in FIGURES)
        print(f"| {name} ({len(some):,}) | {cells} |")
    counting = all_scores(predictions, records, pairs)
    print({key: round(value, 1) for key, value in counting.items() if key.startswith("count_")})


def _row(chosen: NDArray[np.bool_], probable: NDArray[np.float32], right: NDArray[np.bool_]) -> str:
    error = calibration_error(torch.from_numpy(probable[chosen]), torch.from_numpy(right[chosen]))
    return f"{chosen.sum():,} | {probable[chosen].mean():.3f} | {right[chosen].mean():.3f} | {error:.3f}"


if __name__ == "__main__":
    main()
