"""`tallybox vqa evaluate`: scores of finished runs."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tallybox.errors import InputError
from tallybox.vqa.checkpoints import Checkpoint, read_checkpoint
from tallybox.vqa.config import MODELS
from tallybox.vqa.data.splits import (
    JOINED_SPLITS,
    EncodedQuestions,
    has_split,
    open_pairs,
    open_questions,
    open_records,
)
from tallybox.vqa.prediction import PUBLISHED_SUFFIXES, predict_run, prepared_folder, run_settings
from tallybox.vqa.scoring import accuracy_by, all_scores

Scores = dict[str, float]  # by the names of KEYS and COUNT_KEYS

DATA = "data"  # the name of the data's identity in a run's config.json
TYPE = "type: "
UNKNOWN = "not known"


@dataclass(frozen=True)
class ScoredRuns:
    """The scores of runs that differ only in their seed."""

    settings: dict[str, Any]
    learned_from: dict[str, str]  # of the first; see `learned_from`
    scores: list[Scores]


def check_answers(questions: EncodedQuestions, split: str) -> None:
    """Raise if a split's questions have no answers."""
    if questions.answers is None:
        raise InputError(f"Split {split} has no answers to score against; use tallybox vqa predict.")


def evaluate_runs(
    runs: Sequence[Path],
    *,
    split: str,
    device: torch.device,
    prepared: Path | None = None,
    name: str | None = None,
    question_types: bool = False,
    on_progress: Callable[[str, int, int], None] = lambda run, done, total: None,
) -> dict[str, ScoredRuns]:
    """Score runs on a split of the folder they were trained from, or of another; by model, in the paper's order.

    Runs of one model that differ in more than their seed are scored separately, all but the first under names with
    their paths. ``name`` is the model in a file of the published code, or the component of your own that runs use. With
    ``question_types``, accuracies by the official type of a question come under names that begin with `TYPE`.
    """
    folders = [prepared_folder(run, prepared) for run in runs]
    for folder in set(folders):  # runs of one folder are usual
        check_answers(open_questions(folder, split), split)
    groups: dict[str, ScoredRuns] = {}
    for run, folder in zip(runs, folders, strict=True):
        show = partial(on_progress, str(run))
        found, predictions = predict_run(run, split=split, device=device, prepared=folder, name=name, on_progress=show)
        records = open_records(folder, split)
        run_scores = all_scores(predictions, records, open_pairs(folder, split))
        if question_types:
            by_type = accuracy_by(lambda record: record.question_type, predictions, records)
            most_frequent_first = sorted(by_type, key=lambda name: -by_type[name][0])
            run_scores |= {TYPE + name: by_type[name][1] for name in most_frequent_first}
        settings, model = settings_of(run, found), found.config.model.name
        same = [title for title, group in groups.items() if group.settings == settings]
        title = same[0] if same else f"{model} ({run})" if model in groups else model
        groups.setdefault(title, ScoredRuns(settings, learned_from(run, found), [])).scores.append(run_scores)
    order = {model: place for place, model in enumerate(MODELS)}
    return dict(sorted(groups.items(), key=lambda item: order.get(item[1].settings["name"], len(order))))


def learned_from(run: Path, checkpoint: Checkpoint) -> dict[str, str]:
    """Return the ``split`` and the ``prepared`` folder that a run was trained on, as far as they are known."""
    source = run_settings(run)
    found = {"split": source.get("split", checkpoint.split), "prepared": source.get("prepared", "")}
    return {key: value for key, value in found.items() if value}


def settings_of(run: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return everything that runs must share for their scores to be averaged: all settings but the seed."""
    settings = asdict(checkpoint.config.model) | asdict(checkpoint.config.training)
    del settings["seed"]
    source = learned_from(run, checkpoint)
    data = run_settings(run).get(DATA, source.get("prepared", UNKNOWN))
    return settings | {"split": source.get("split", UNKNOWN), DATA: data}


def count_learned(run: Path, split: str, prepared: Path | None = None) -> int:
    """Return how many of a split's questions a run was trained on; 0 if neither folder nor checkpoint says."""
    if run.suffix in PUBLISHED_SUFFIXES:
        return 0
    source = run_settings(run)
    learned_split = source.get("split") or read_checkpoint(run)[0].split
    folder = prepared_folder(run, prepared)
    scored = open_questions(folder, split).question_ids
    own = Path(source.get("prepared", folder))
    learned = own if own.exists() else folder
    parts = [part for part in JOINED_SPLITS.get(learned_split, (learned_split,)) if has_split(learned, part)]
    return sum(int(np.isin(scored, open_questions(learned, part).question_ids).sum()) for part in parts)


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
