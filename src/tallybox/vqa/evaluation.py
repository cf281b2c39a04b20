"""Scores of trained runs, several of a model together."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.vqa.checkpoints import Checkpoint, load_model
from tallybox.vqa.configuration import ModelName
from tallybox.vqa.count_errors import COUNT_KEYS, count_errors
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import predict
from tallybox.vqa.prepared import Questions
from tallybox.vqa.preparing import PHOTOS, VOCABULARY
from tallybox.vqa.published import load_published
from tallybox.vqa.questions import Record
from tallybox.vqa.scoring import KEYS, score
from tallybox.vqa.splits import open_pairs, open_questions, open_records
from tallybox.vqa.store import FeatureStore
from tallybox.vqa.table import mean_and_deviation
from tallybox.vqa.vocabulary import Vocabulary

Figures = dict[str, float]  # by the names of KEYS and COUNT_KEYS

PUBLISHED_SUFFIXES = (".pth", ".pt")


def evaluate_runs(
    runs: Sequence[Path],
    *,
    split: str,
    device: torch.device,
    prepared: Path | None = None,
    on_progress: Callable[[str, int, int], None] = lambda run, done, total: None,
) -> dict[str, list[Figures]]:
    """Score runs on a split of the folder they were trained from, or of another; by model, in the paper's order."""
    scores: dict[str, list[Figures]] = {}
    for run in runs:
        folder = prepared_folder(run, prepared)

        def on_answers(done: int, total: int, run: Path = run) -> None:
            on_progress(str(run), done, total)

        name, predictions = _predict(run, folder, split, device, on_answers)
        found = all_figures(predictions, open_records(folder, split), open_pairs(folder, split))
        scores.setdefault(name, []).append(found)
    return {name: scores[name] for name in get_args(ModelName) if name in scores}


def all_figures(
    predictions: Mapping[int, str], records: Sequence[Record], pairs: NDArray[np.int64] | Sequence[Sequence[int]]
) -> Figures:
    """Return the scores of a split's answers, and by `COUNT_KEYS` how well they count."""
    return dict(score(predictions, records, pairs)) | count_errors(predictions, records)


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
    model, checkpoint = load_run(run)
    questions, store = open_questions(folder, split), FeatureStore.open(folder / PHOTOS)
    if Vocabulary.load(folder / VOCABULARY).words != checkpoint.words:
        questions = in_words_of(checkpoint, questions, open_records(folder, split))
    answers = predict(model, checkpoint, questions, store, device=device, on_progress=on_progress)
    return checkpoint.config.model.name, answers


def load_run(run: Path) -> tuple[VqaModel, Checkpoint]:
    """Return the model of a run's folder, or of a file of the published code."""
    return load_published(run) if run.suffix in PUBLISHED_SUFFIXES else load_model(run)


def in_words_of(checkpoint: Checkpoint, questions: Questions, records: Sequence[Record]) -> Questions:
    """Return questions with their words numbered as a model learned them, whatever they were prepared with."""
    vocabulary = Vocabulary(checkpoint.words, checkpoint.answers)
    encoded = [vocabulary.encode_question(record.text) for record in records]
    words = np.zeros((len(encoded), max(map(len, encoded), default=1)), np.int64)
    for row, places in enumerate(encoded):
        words[row, : len(places)] = places
    return replace(
        questions, words=words, lengths=np.array([len(places) for places in encoded], np.int64), answers=None
    )


def summarise(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Return mean scores by model, ready for JSON, with deviations where there are several runs.

    A single model's are also under "model".
    """
    summary: dict[str, Any] = {}
    for name, runs in scores.items():
        figures = {
            key: mean_and_deviation([run[key] for run in runs])
            for key in (*KEYS, *COUNT_KEYS)
            if all(key in run for run in runs)
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
        raise InputError(
            f"{run} must be a folder that tallybox vqa train wrote, but it has no config.json; "
            "for a checkpoint alone, name the questions' folder with --prepared"
        )
    folder = Path(json.loads(described.read_text())["config"]["prepared"])
    if not folder.exists():
        raise InputError(f"{run} was trained from {folder}, which is not there; name where it is with --prepared")
    return folder
