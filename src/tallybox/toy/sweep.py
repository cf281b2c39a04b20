"""Sweeps over the toy task: the settings of the paper's figures or your own, trained in groups, resumable."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from tallybox.errors import InputError
from tallybox.runs import append_results, open_run, read_results
from tallybox.toy.training import MODELS, Setting, ToyConfig, train_settings

Difficulty = Literal["easy", "hard"]

# The value of the parameter that is not varied.
FIXED_AT: dict[Difficulty, float] = {"easy": 0.0, "hard": 0.5}


def sweep_settings(difficulty: Difficulty, step: float = 0.01) -> list[Setting]:
    """Return the settings of one of the paper's two figures: l varied, then q varied.

    >>> len(sweep_settings("hard"))
    202
    """
    points = round(1 / step) if 0 < step <= 1 else 0
    if not points or abs(points * step - 1) > 1e-9:
        raise InputError(f"step must divide 1 into equal parts, such as 0.01 or 0.05, not {step:g}.")
    fixed = FIXED_AT[difficulty]
    values = [round(point * step, 6) for point in range(points + 1)]
    return [Setting(value, fixed) for value in values] + [Setting(fixed, value) for value in values]


def grid_settings(side_lengths: Iterable[float], noises: Iterable[float]) -> list[Setting]:
    """Return every combination of side lengths and noises.

    >>> len(grid_settings([0.2, 0.5], [0.0, 0.5, 1.0]))
    6
    """
    noises = list(noises)
    return [Setting(side_length, noise) for side_length in side_lengths for noise in noises]


def run_sweep(
    folder: Path,
    settings: Sequence[Setting],
    config: ToyConfig,
    *,
    seeds: Sequence[int],
    device: torch.device,
    settings_at_once: int = 1,
    models: Sequence[str] = MODELS,
    described_as: dict[str, Any] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Train the settings that the folder has no results of, a group at a time; finished groups are kept.

    ``described_as`` is stored with the configuration; a folder is resumed only with the same. ``on_progress`` is called
    with the number of finished training and evaluation steps and their total.
    """
    settings = list(dict.fromkeys(settings))  # both halves of the paper's sweeps have the setting (fixed, fixed)
    described = described_as or {"settings": [[setting.side_length, setting.noise] for setting in settings]}
    results_path = open_run(folder, {**described, "seeds": list(seeds), "models": list(models), **asdict(config)})
    finished = {(result["side_length"], result["noise"], result["seed"]) for result in read_results(results_path)}
    groups = []
    for seed in seeds:
        missing = [s for s in settings if (s.side_length, s.noise, seed) not in finished]
        groups += [(seed, missing[i : i + settings_at_once]) for i in range(0, len(missing), settings_at_once)]
    for number, (seed, group) in enumerate(groups):

        def report(done: int, steps: int, number: int = number) -> None:
            on_progress(number * steps + done, len(groups) * steps)

        results = train_settings(group, seed, config, device=device, models=models, on_progress=report)
        append_results(results_path, [asdict(result) for result in results])
