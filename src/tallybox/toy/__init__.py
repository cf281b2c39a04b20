"""The paper's toy task (section 5.1): draw its images, train models on it, sweep over its settings."""

from tallybox.toy.data import ToyImages, draw_images
from tallybox.toy.sweep import grid_settings, run_sweep, sweep_settings
from tallybox.toy.training import (
    Setting,
    SettingResult,
    ToyConfig,
    ToyTraining,
    load_layers,
    save_layers,
    train_settings,
)

__all__ = [
    "Setting",
    "SettingResult",
    "ToyConfig",
    "ToyImages",
    "ToyTraining",
    "draw_images",
    "grid_settings",
    "load_layers",
    "run_sweep",
    "save_layers",
    "sweep_settings",
    "train_settings",
]
