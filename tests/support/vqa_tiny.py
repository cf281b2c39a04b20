"""A tiny set of questions and photos in memory. As a program it trains into a folder:
``python -m tests.support.vqa_tiny FOLDER MODEL EPOCHS [SECONDS OF SLEEP A STEP]``.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tallybox.vqa.batches import TrainingData
from tallybox.vqa.config import ModelConfig, TrainingConfig, VqaConfig
from tallybox.vqa.data.splits import EncodedQuestions
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.training import train

PHOTOS, FEATURES, WORDS, ANSWERS = 12, 6, 9, 5
CPU = torch.device("cpu")


def tiny_data(questions: int = 21, seed: int = 0) -> TrainingData:
    random = np.random.default_rng(seed)
    offsets = np.concatenate(([0], random.integers(1, 8, PHOTOS).cumsum()))
    corners = random.uniform(0, 50, (offsets[-1], 2))
    features = random.uniform(0, 3, (offsets[-1], FEATURES)).astype(np.float16)
    boxes = np.concatenate((corners, corners + random.uniform(5, 40, corners.shape)), 1).astype(np.float32)
    split = int(offsets[PHOTOS // 2])  # the photos of two files
    parts = [features[:split], features[split:]]
    sizes = np.full((PHOTOS, 2), 100, np.float32)
    store = FeatureStore([str(photo) for photo in range(PHOTOS)], sizes, offsets, boxes, parts)
    lengths = random.integers(1, 6, questions)
    words = random.integers(0, WORDS + 1, (questions, 5)) * (np.arange(5) < lengths[:, None])
    answers = random.integers(0, ANSWERS, (questions, 1)).repeat(10, 1)
    answers[:, 7:] = random.integers(-1, ANSWERS, (questions, 3))
    answers[3] = -1  # nothing to learn from
    images = random.integers(0, PHOTOS, questions)
    relevance = random.integers(0, 2, (questions, 7)).astype(np.int8)
    relevance[np.arange(7) >= np.diff(offsets)[images][:, None]] = -1
    relevance[5:9] = -1  # what these name is not known
    asked = EncodedQuestions(np.arange(questions) + 100, images, words, lengths, answers, relevance)
    names = tuple(f"word{k}" for k in range(WORDS)), tuple(f"answer{k}" for k in range(ANSWERS))
    return TrainingData(asked, store, *names)


def tiny_config(name: str = "counter", *, dropout: float = 0.5, **training: Any) -> VqaConfig:
    sizes = {"embedding": 4, "question": 6, "attention": 5, "classifier": 7, "max_objects": 3}
    usual = {"batch": 4, "epochs": 3, "learning_rate": 0.01, "half_life": 20, "attention_supervision": 0.5}
    return VqaConfig(
        ModelConfig(name=name, dropout=dropout, **sizes), TrainingConfig(**{**usual, "log_steps": 2, **training})
    )


if __name__ == "__main__":
    pause = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0

    def say(done: int, total: int) -> None:
        print(done, flush=True)
        time.sleep(pause)

    torch.set_num_threads(1)
    train(
        tiny_data(), Path(sys.argv[1]), tiny_config(sys.argv[2], epochs=int(sys.argv[3])), device=CPU, on_progress=say
    )
