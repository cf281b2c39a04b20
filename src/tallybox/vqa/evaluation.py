"""Scores of trained runs, several of a model together."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch

from tallybox.errors import InputError
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.configuration import ModelName
from tallybox.vqa.prediction import predict
from tallybox.vqa.preparing import PHOTOS, VOCABULARY
from tallybox.vqa.scoring import KEYS, Scores, score
from tallybox.vqa.splits import open_pairs, open_questions, open_records
from tallybox.vqa.store import FeatureStore
from tallybox.vqa.table import mean_and_deviation
from tallybox.vqa.vocabulary import Vocabulary


def evaluate_runs(
    runs: Sequence[Path],
    *,
    split: str,
    device: torch.device,
    prepared: Path | None = None,
    on_progress: Callable[[str, int, int], None] = lambda run, done, total: None,
) -> dict[str, list[Scores]]:
    """Score runs on a split of the folder they were trained from, or of another; by model, in the paper's order."""
    scores: dict[str, list[Scores]] = {}
    for run in runs:
        folder = prepared_folder(run, prepared)

        def on_answers(done: int, total: int, run: Path = run) -> None:
            on_progress(str(run), done, total)

        name, predictions = _predict(run, folder, split, device, on_answers)
        found = score(predictions, open_records(folder, split), open_pairs(folder, split))
        scores.setdefault(name, []).append(found)
    return {name: scores[name] for name in get_args(ModelName) if name in scores}


def predict_run(
    run: Path,
    *,
    split: str,
    device: torch.device,
    prepared: Path | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[int, str]:
    """Return a run's answers to the questions of a split, by question id."""
    return _predict(run, prepared_folder(run, prepared), split, device, on_progress)[1]


def _predict(
    run: Path, folder: Path, split: str, device: torch.device, on_progress: Callable[[int, int], None]
) -> tuple[str, dict[int, str]]:
    model, checkpoint = load_model(run)
    if Vocabulary.load(folder / VOCABULARY).words != checkpoint.words:
        raise InputError(
            f"{folder} must have the vocabulary of {run}, but has another; prepare it with --vocabulary of the first"
        )
    questions, store = open_questions(folder, split), FeatureStore.open(folder / PHOTOS)
    answers = predict(model, checkpoint, questions, store, device=device, on_progress=on_progress)
    return checkpoint.config.model.name, answers


def summarise(scores: Mapping[str, Sequence[Scores]]) -> dict[str, Any]:
    """Return mean scores by model, ready for JSON, with deviations where there are several runs.

    A single model's are also under "model".
    """
    summary: dict[str, Any] = {}
    for name, runs in scores.items():
        figures = {
            key: mean_and_deviation([run[key] for run in runs]) for key in KEYS if all(key in run for run in runs)
        }
        summary[name] = {key: mean for key, (mean, _) in figures.items()} | {"runs": len(runs)}
        if len(runs) > 1:
            summary[name]["deviation"] = {key: deviation for key, (_, deviation) in figures.items()}
    if len(summary) == 1:
        summary["model"] = next(iter(summary.values()))
    return summary


def prepared_folder(run: Path, prepared: Path | None) -> Path:
    """Return the prepared folder that was named, or that a run was trained from."""
    if prepared is not None:
        return prepared
    described = run / "config.json"
    if not described.exists():
        raise InputError(f"{run} must be a folder that tallybox vqa train wrote, but it has no config.json")
    folder = Path(json.loads(described.read_text())["config"]["prepared"])
    if not folder.exists():
        raise InputError(f"{run} was trained from {folder}, which is not there; name where it is with --prepared")
    return folder
