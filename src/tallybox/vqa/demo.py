"""`tallybox vqa demo`: simulate a data set, prepare it, train four models on it and score them."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from tallybox.vqa.config import MODELS, ModelConfig, TrainingConfig, VqaConfig
from tallybox.vqa.data.official import official_files
from tallybox.vqa.data.prepare import OnProgress, prepare
from tallybox.vqa.prediction import Scores, evaluate_runs
from tallybox.vqa.simulation import FEATURES, World, simulate
from tallybox.vqa.training import train_prepared

# A small model and a short schedule. With steps of 256 questions, the counter learned to count with some seeds only.
CONFIG = VqaConfig(
    ModelConfig(embedding=32, question=64, attention=128, classifier=128, dropout=0.0),
    TrainingConfig(batch=128, epochs=12, learning_rate=0.006, half_life=2000),
)


def run_demo(
    folder: Path,
    *,
    device: torch.device,
    world: World | None = None,
    config: VqaConfig = CONFIG,
    on_progress: OnProgress = lambda step, done, total: None,
) -> dict[str, list[Scores]]:
    """Run all steps in a folder and return the scores by model; the same call goes on after an interruption."""
    files, prepared = folder / "files", folder / "prepared"
    if not (files / FEATURES).exists():  # written last
        simulate(files, world, partial(on_progress, "photos"))
    prepare(official_files(files), [files / FEATURES], prepared, on_progress=on_progress)
    for name in MODELS:
        chosen = replace(config, model=replace(config.model, name=name))
        show = partial(on_progress, f"training {name}")
        train_prepared(prepared, folder / name, chosen, validate_every=0, device=device, on_progress=show)
    return evaluate_runs([folder / name for name in MODELS], split="val", device=device, on_progress=on_progress)
