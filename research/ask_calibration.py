"""Write the temperature into the checkpoint of `tallybox ask`, so that its probabilities are how often it is right.

    python research/vqa_evidence.py photos PREPARED runs/held-out --on held-out --models presence
    python research/ask_calibration.py runs/held-out src/tallybox/vqa/models/photos_presence.safetensors

The temperature is fitted to the logits of models of the same configuration that learned from four fifths of the
training photos, on the questions about the other fifth. No validation photo takes part.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from calibration import calibration_error, fit_temperature, is_right

from tallybox.vqa.checkpoints import FILE, read_checkpoint, write_checkpoint
from tallybox.vqa.steps import mean_accuracy


def main() -> None:
    """Fit the temperature and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("held_out", type=Path, help="what research/vqa_evidence.py --on held-out wrote")
    parser.add_argument("checkpoint", type=Path)
    given = parser.parse_args()
    files = [np.load(path) for path in sorted(given.held_out.glob("logits_presence_*.npz"))]
    logits, answers = (
        torch.from_numpy(np.concatenate([file[name] for file in files])) for name in ("logits", "answers")
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


if __name__ == "__main__":
    main()
