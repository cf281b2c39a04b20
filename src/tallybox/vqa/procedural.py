"""The whole story on a made-up world: write it, prepare it, train the paper's three models on it, score them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from tallybox.vqa.configuration import ModelConfig, ModelName, TrainingConfig, VqaConfig
from tallybox.vqa.evaluation import Figures, evaluate_runs
from tallybox.vqa.preparing import official_files, prepare
from tallybox.vqa.simulation.simulating import FEATURES, simulate
from tallybox.vqa.simulation.world import World
from tallybox.vqa.training import train
from tallybox.vqa.training_data import open_training_data

MODELS: tuple[ModelName, ...] = ("baseline", "nms", "counting")
# Of usual difficulty; large enough that counts cannot be learned by heart.
WORLD = World(train_photos=9600)
# The same as configs/vqa_procedural.toml, which gives reasons.
CONFIG = VqaConfig(
    ModelConfig(embedding=32, question=64, attention=128, classifier=128, dropout=0.0),
    TrainingConfig(batch=256, epochs=12, learning_rate=0.006, half_life=1000),
)


def run_procedural(
    folder: Path,
    *,
    device: torch.device,
    world: World = WORLD,
    config: VqaConfig = CONFIG,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> dict[str, list[Figures]]:
    """Do all of it in a folder and return the scores by model; after an interruption, the same call goes on."""
    files, prepared = folder / "files", folder / "prepared"
    if not (files / FEATURES).exists():
        unfinished = folder / "files.unfinished"
        simulate(unfinished, world, lambda done, total: on_progress("photos", done, total))
        unfinished.rename(files)
    prepare(official_files(files), [files / FEATURES], prepared, on_progress=on_progress)
    data = open_training_data(prepared, "train")
    for name in MODELS:

        def on_step(done: int, total: int, name: str = name) -> None:
            on_progress(f"training {name}", done, total)

        chosen = replace(config, model=replace(config.model, name=name))
        described = {"prepared": str(prepared.resolve()), "split": "train"}
        train(data, folder / name, chosen, device=device, described=described, on_progress=on_step)
    return evaluate_runs([folder / name for name in MODELS], split="val", device=device, on_progress=on_progress)
