"""`tallybox vqa evaluate`: scores of finished runs."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tallybox.errors import InputError
from tallybox.vqa.config import MODELS
from tallybox.vqa.data.splits import JOINED_SPLITS, open_pairs, open_records
from tallybox.vqa.prediction import predict_run, prepared_folder, run_settings
from tallybox.vqa.scoring import all_scores

Scores = dict[str, float]  # by the names of KEYS and COUNT_KEYS


def evaluate_runs(
    runs: Sequence[Path],
    *,
    split: str,
    device: torch.device,
    prepared: Path | None = None,
    name: str | None = None,
    on_progress: Callable[[str, int, int], None] = lambda run, done, total: None,
) -> dict[str, list[Scores]]:
    """Score runs on a split of the folder they were trained from, or of another; by model, in the paper's order.

    Runs of one model, such as those of several seeds, are listed together. ``name`` is the component of your own that
    runs use.
    """
    scores: dict[str, list[Scores]] = {model: [] for model in MODELS}
    for run in runs:
        folder = prepared_folder(run, prepared)
        records = open_records(folder, split)
        if any(record.answers is None for record in records):
            raise InputError(f"Split {split} has no answers to score against; use tallybox vqa predict.")
        show = partial(on_progress, str(run))
        found, answers = predict_run(run, split=split, device=device, prepared=folder, name=name, on_progress=show)
        run_scores = all_scores(answers, records, open_pairs(folder, split))
        scores.setdefault(found.config.model.name, []).append(run_scores)
    return {model: of_runs for model, of_runs in scores.items() if of_runs}


def is_trained_on(run: Path, split: str) -> bool:
    """Return whether a run was trained on a split, by its config.json."""
    learned = run_settings(run).get("split")
    return split in (learned, *JOINED_SPLITS.get(str(learned), ()))


def summarise(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Return mean scores by model, ready for JSON, with deviations if there are several runs.

    The scores of a single model are also under "model".
    """
    summary: dict[str, Any] = {}
    for name, runs in scores.items():
        keys = [key for key in runs[0] if all(key in run for run in runs)]
        figures = {key: mean_and_deviation([run[key] for run in runs]) for key in keys}
        summary[name] = {key: value for key, (value, _) in figures.items()} | {"runs": len(runs)}
        if len(runs) > 1:
            summary[name]["deviation"] = {key: deviation for key, (_, deviation) in figures.items()}
    if len(summary) == 1:
        summary["model"] = next(iter(summary.values()))
    return summary


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation, which is None for a single value.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def format_score(values: Sequence[float]) -> str:
    """Return the scores of several runs as "mean±deviation", of a single run as its score.

    >>> format_score([44.0, 45.0]), format_score([64.0]), format_score([])
    ('44.50±0.7', '64.00', '–')
    """
    if not values:
        return "–"
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f}±{deviation:.1f}"
