"""`tallybox vqa demo`: simulate a data set, prepare it, train four models on it and score them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from tallybox.vqa.batches import open_training_data
from tallybox.vqa.configuration import ModelConfig, ModelName, TrainingConfig, VqaConfig
from tallybox.vqa.data.prepare import official_files, prepare
from tallybox.vqa.evaluation import Scores, evaluate_runs
from tallybox.vqa.simulation.files import FEATURES
from tallybox.vqa.simulation.simulate import simulate
from tallybox.vqa.simulation.world import World
from tallybox.vqa.training import train

MODELS: tuple[ModelName, ...] = ("baseline", "nms", "counter", "presence")
# Large enough that counts cannot be memorised.
WORLD = World(train_photos=9600)
# The values of configs/vqa_demo.toml, which gives reasons.
CONFIG = VqaConfig(
    ModelConfig(embedding=32, question=64, attention=128, classifier=128, dropout=0.0, presence_sharpness=4),
    TrainingConfig(batch=256, epochs=12, learning_rate=0.006, half_life=1000, count_rate=2.0),
)


def run_demo(
    folder: Path,
    *,
    device: torch.device,
    world: World = WORLD,
    config: VqaConfig = CONFIG,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> dict[str, list[Scores]]:
    """Run all steps in a folder and return the scores by model; the same call resumes after an interruption."""
    files, prepared = folder / "files", folder / "prepared"
    if not (files / FEATURES).exists():
        unfinished = folder / "files.unfinished"
        simulate(unfinished, world, partial(on_progress, "photos"))
        unfinished.rename(files)
    prepare(official_files(files), [files / FEATURES], prepared, on_progress=on_progress)
    data = open_training_data(prepared, "train")
    described = {"prepared": str(prepared.resolve()), "split": "train"}
    for name in MODELS:
        chosen = replace(config, model=replace(config.model, name=name))
        report = partial(on_progress, f"training {name}")
        train(data, folder / name, chosen, device=device, described=described, on_progress=report)
    return evaluate_runs([folder / name for name in MODELS], split="val", device=device, on_progress=on_progress)
