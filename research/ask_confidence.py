"""How probable the model of `tallybox ask` thinks its answers are, and how often they are right.

    python research/ask_confidence.py runs/vqa-photos/prepared       # what research/vqa_photos.py and vqa prepare wrote

Prints the table of docs/ask.md, from the questions about the 1,000 validation photos: half a minute on one core.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from tallybox.asking import SHIPPED_MODEL
from tallybox.vqa.batches import place_examples
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.preparing import PHOTOS
from tallybox.vqa.splits import open_questions, open_records
from tallybox.vqa.store import FeatureStore
from tallybox.vqa.vocabulary import Vocabulary

EDGES = (0, 0.25, 0.5, 0.75, 1)
AGREEING = 3  # people, for an answer to be right


def main() -> None:
    """Print how often answers of each probability are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    prepared = parser.parse_args().prepared
    model, checkpoint = load_model(SHIPPED_MODEL)
    questions, records = open_questions(prepared, "val"), open_records(prepared, "val")
    store = FeatureStore.open(prepared / PHOTOS)
    examples = place_examples(
        questions, store, torch.device("cpu"), torch.float32, checkpoint.config.model.feature_length
    )
    probable, right = [], []
    with torch.inference_mode():
        for rows in np.array_split(np.arange(len(records)), -(-len(records) // 512)):
            best = model(next(iter(examples.batches([rows]))).batch).softmax(-1).max(-1)
            probable += best.values.tolist()
            said = (checkpoint.answers[place] for place in best.indices)
            right += [
                (records[row].answers or ()).count(answer) >= AGREEING for row, answer in zip(rows, said, strict=True)
            ]
    which = np.digitize(probable, EDGES[1:-1])
    print("| said to be probable | answers | mean probability | right |\n|---|---|---|---|")
    for place, (low, high) in enumerate(pairwise(EDGES)):
        print(f"| {low:.0%} to {high:.0%} | {_row(which == place, probable, right)}".replace("%", " %"))
    print(f"| all | {_row(which >= 0, probable, right)}")
    vocabulary = Vocabulary(checkpoint.words, checkpoint.answers)
    unknown = np.array([not all(vocabulary.encode_question(record.text)) for record in records])
    print(f"| with a word that it does not know | {_row(unknown, probable, right)}")


def _row(chosen: np.ndarray, probable: list[float], right: list[bool]) -> str:
    return f"{chosen.sum():,} | {np.mean(np.array(probable)[chosen]):.3f} | {np.mean(np.array(right)[chosen]):.3f} |"


if __name__ == "__main__":
    main()
