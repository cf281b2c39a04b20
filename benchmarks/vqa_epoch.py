"""Train on as many questions as VQA v2 has, about photos as large as its features, and time each epoch.

    python benchmarks/vqa_epoch.py FOLDER --proposals 100 --device cuda     # JSON; 34 GB of zeros, in a sparse file

An epoch includes loading, the log and the checkpoint, as `tallybox vqa train` writes them. Features are zeros: their
values do not change the time. Lengths of questions are those of `python -m benchmarks.vqa`.
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from benchmarks.vqa import LENGTHS, SHARES

from tallybox.runs import versions
from tallybox.vqa.batches import TrainingData
from tallybox.vqa.config import VqaConfig, read_configuration
from tallybox.vqa.data.splits import EncodedQuestions
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.training import train

QUESTIONS, PHOTOS = 443_757, 82_783  # of VQA v2's training split
WORDS, ANSWERS, FEATURES = 15_000, 3_000, 2_048


def data_of_real_size(folder: Path, proposals: int) -> TrainingData:
    """Return questions of random words about photos whose features are zeros."""
    random = np.random.default_rng(0)
    total = PHOTOS * proposals
    corners = random.random((total, 2), np.float32) * 400
    store = FeatureStore(
        image_ids=[str(photo) for photo in range(PHOTOS)],
        sizes_wh=np.full((PHOTOS, 2), 1000, np.float32),
        offsets=np.arange(0, total + 1, proposals),
        features=[np.memmap(folder / "features.f16", np.float16, "w+", shape=(total, FEATURES)).view(np.ndarray)],
        boxes_xyxy=np.concatenate((corners, corners + 20 + corners[::-1] / 2), 1),
    )
    lengths = random.choice(LENGTHS, QUESTIONS, p=np.array(SHARES) / sum(SHARES))
    words = random.integers(1, WORDS + 1, (QUESTIONS, max(LENGTHS)))
    questions = EncodedQuestions(
        np.arange(QUESTIONS),
        random.integers(0, PHOTOS, QUESTIONS),
        words * (np.arange(words.shape[1]) < lengths[:, None]),
        lengths,
        random.integers(0, ANSWERS, (QUESTIONS, 10)),
    )
    names = (tuple(f"{kind}{index}" for index in range(number)) for kind, number in (("w", WORDS), ("a", ANSWERS)))
    return TrainingData(questions, store, *names)


def main() -> None:
    """Train, and print the seconds of each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--proposals", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    data = data_of_real_size(arguments.folder, arguments.proposals)
    config: VqaConfig = read_configuration(None, training={"epochs": arguments.epochs})
    ends = [time.perf_counter()]
    train(
        data,
        arguments.folder / "run",
        config,
        device=torch.device(arguments.device),
        on_epoch=lambda done, model: ends.append(time.perf_counter()),
    )
    seconds = [round(end - start, 2) for start, end in pairwise(ends)]
    result = {
        "proposals": arguments.proposals,
        "questions": QUESTIONS,
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else arguments.device,
        "versions": versions(),
        "load_compile_and_first_epoch_s": seconds[0],
        "epoch_s": seconds[1:],
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
