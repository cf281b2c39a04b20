"""Write the temperature into the checkpoint of `tallybox ask`, so that its probabilities are how often it is right.

    python research/vqa_evidence.py photos PREPARED runs/held-out --on held-out --models presence
    python research/ask_calibration.py PREPARED runs/held-out src/tallybox/ask/data/photos_presence.safetensors

The temperature is fitted to the logits of models of the same configuration that learned from four fifths of the
training photos, on the questions about the other fifth that `ask` leaves to the model. No validation photo takes part.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from calibration import calibration_error, fit_temperature, is_right
from tallybox.ask.category_questions import read_category_question

from tallybox.vqa.checkpoints import FILE, read_checkpoint, write_checkpoint
from tallybox.vqa.data.splits import open_records
from tallybox.vqa.steps import mean_accuracy


def main() -> None:
    """Fit the temperature and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("held_out", type=Path, help="what research/vqa_evidence.py --on held-out wrote")
    parser.add_argument("checkpoint", type=Path)
    given = parser.parse_args()
    files = [np.load(path) for path in sorted(given.held_out.glob("logits_presence_*.npz"))]
    texts = {record.question_id: record.text for record in open_records(given.prepared, "train")}
    chosen = [[is_left_to_model(texts[question_id]) for question_id in file["question_ids"].tolist()] for file in files]
    logits, answers = (
        torch.from_numpy(np.concatenate([file[name][rows] for file, rows in zip(files, chosen, strict=True)]))
        for name in ("logits", "answers")
    )
    temperature = round(fit_temperature(logits, answers), 3)
    print(f"{len(files)} models, {len(logits)} answers, accuracy {100 * mean_accuracy(logits, answers):.1f} %")
    for name, divided_by in (("before", 1.0), ("after", temperature)):
        best = (logits / divided_by).softmax(-1).max(-1)
        error = calibration_error(best.values, is_right(logits, answers))
        print(f"{name}: temperature {divided_by}, calibration error {error:.4f}")
    checkpoint, tensors = read_checkpoint(given.checkpoint)
    with TemporaryDirectory(dir=given.checkpoint.parent) as folder:
        write_checkpoint(Path(folder), replace(checkpoint, temperature=temperature), tensors.items())
        (Path(folder) / FILE).replace(given.checkpoint)


def is_left_to_model(text: str) -> bool:
    """Return whether `ask` leaves a question to the model, unless what it is about is not there."""
    question = read_category_question(text)
    return question is None or question.kind not in ("how many", "whether")


if __name__ == "__main__":
    main()
