"""Scores of models: after epochs of training, and of finished runs (`tallybox vqa evaluate`)."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.runs import read_results
from tallybox.vqa.batches import DATA_CHECKSUM, data_checksum, load_examples
from tallybox.vqa.checkpoints import BEST, Checkpoint, read_checkpoint, write_checkpoint
from tallybox.vqa.config import ModelName
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import (
    JOINED_SPLITS,
    EncodedQuestions,
    has_split,
    open_pairs,
    open_questions,
    open_records,
)
from tallybox.vqa.data.store import PHOTOS, FeatureStore
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import PUBLISHED_SUFFIXES, answer, predict_run, prepared_folder, run_settings
from tallybox.vqa.scoring import accuracy_by, all_scores
from tallybox.vqa.steps import compute_dtype

Scores = dict[str, float]  # by the names of KEYS and COUNT_KEYS

TITLES = {"baseline": "Baseline", "nms": "+ NMS", "counter": "+ counting module", "presence": "+ presence counter"}
# The columns of the paper's second table, and their scores.
TABLE_KEYS = ("number", "count", "all", "pair_number", "pair_count", "pair_all")
COLUMNS = [(key.replace("_", " ").capitalize(), key) for key in TABLE_KEYS]
TYPE = "type: "
MISSING = "–"
UNKNOWN = "not known"
VALIDATION = "validation.jsonl"  # the file of scores in a run's folder
BEST_BY = "all"


@dataclass(frozen=True)
class ValidationData:
    """Questions to score a model on while it is trained."""

    questions: EncodedQuestions
    records: list[QuestionRecord]
    pairs: NDArray[np.int64]
    store: FeatureStore
    every: int = 1  # epochs


@dataclass(frozen=True)
class ScoredRuns:
    """The scores of runs that differ in nothing but their seed."""

    model: str
    settings: dict[str, Any]
    learned_from: dict[str, str]  # of the first; see `learned_from`
    scores: list[Scores]


def open_validation_data(prepared: Path, split: str, every: int = 1) -> ValidationData:
    """Open a split of a prepared folder."""
    questions = open_questions(prepared, split)
    check_answers(questions, split)
    store = FeatureStore.open(prepared / PHOTOS)
    return ValidationData(questions, open_records(prepared, split), open_pairs(prepared, split), store, every)


def check_answers(questions: EncodedQuestions, split: str) -> None:
    """Raise if a split's questions have no answers."""
    if questions.answers is None:
        raise InputError(
            f"split {split} must have answers to be scored on, but has none; name another, or use tallybox vqa predict"
        )


class Validator:
    """Scores a model after epochs into a run's ``validation.jsonl`` and keeps its best weights."""

    def __init__(self, data: ValidationData, folder: Path, checkpoint: Checkpoint, device: torch.device) -> None:
        self.data, self.folder = data, folder
        config = checkpoint.config
        dtype = compute_dtype(config.training.precision, device)
        self.examples = load_examples(data.questions, data.store, device, dtype, config.model.feature_length)
        self.model = VqaModel(config.model, checkpoint.sizes)  # a second model: the trained one may be compiled
        # Epochs after the checkpoint are repeated.
        self.lines = [line for line in read_results(folder / VALIDATION) if line["epoch"] <= checkpoint.epoch]

    def validate(self, model: VqaModel, checkpoint: Checkpoint) -> dict[str, float]:
        """Score a model, add a line, and write the weights if they are better than all before."""
        self.model.load_state_dict(model.state_dict())
        scores = all_scores(answer(self.model, checkpoint, self.examples), self.data.records, self.data.pairs)
        if all(scores[BEST_BY] > line[BEST_BY] for line in self.lines):
            tensors = ((f"model.{name}", value) for name, value in model.state_dict().items())
            write_checkpoint(self.folder, checkpoint, tensors, BEST)
        self.lines.append({"epoch": checkpoint.epoch, "step": checkpoint.steps, **scores})
        write_text(self.folder / VALIDATION, "".join(json.dumps(line) + "\n" for line in self.lines))
        return scores


def evaluate_runs(
    runs: Sequence[Path],
    *,
    split: str,
    device: torch.device,
    prepared: Path | None = None,
    name: ModelName | None = None,
    question_types: bool = False,
    on_progress: Callable[[str, int, int], None] = lambda run, done, total: None,
) -> dict[str, ScoredRuns]:
    """Score runs on a split of the folder they were trained from, or of another; by model, in the paper's order.

    Runs that differ in more than their seed are apart, under names that say what differs.

    ``name`` says which model a file of the published code holds. With ``question_types``, accuracies by the official
    type of a question come under names that begin with `TYPE`.
    """
    folders = [prepared_folder(run, prepared) for run in runs]
    for folder in set(folders):  # runs of one folder are usual
        check_answers(open_questions(folder, split), split)
    groups: list[ScoredRuns] = []
    for run, folder in zip(runs, folders, strict=True):
        show = partial(on_progress, str(run))
        found, predictions = predict_run(run, split=split, device=device, prepared=folder, name=name, on_progress=show)
        records = open_records(folder, split)
        run_scores = all_scores(predictions, records, open_pairs(folder, split))
        if question_types:
            by_type = accuracy_by(lambda record: record.question_type, predictions, records)
            most_frequent_first = sorted(by_type, key=lambda name: -by_type[name][0])
            run_scores |= {TYPE + name: by_type[name][1] for name in most_frequent_first}
        settings = settings_of(run, found)
        same = [group for group in groups if group.settings == settings]
        if not same:
            groups += (same := [ScoredRuns(found.config.model.name, settings, learned_from(run, found), [])])
        same[0].scores.append(run_scores)
    groups.sort(key=lambda group: get_args(ModelName).index(group.model))
    return {_name(group, groups): group for group in groups}


def learned_from(run: Path, checkpoint: Checkpoint) -> dict[str, str]:
    """Return the ``split`` and the ``prepared`` folder that a run learned from, as far as they are known."""
    source = run_settings(run)
    found = {"split": source.get("split", checkpoint.split), "prepared": source.get("prepared", "")}
    return {key: value for key, value in found.items() if value}


def settings_of(run: Path, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return all that runs must have in common for their scores to be averaged: everything but the seed."""
    settings = asdict(checkpoint.config.model) | asdict(checkpoint.config.training)
    del settings["seed"]
    source = learned_from(run, checkpoint)
    split, folder = source.get("split", UNKNOWN), source.get("prepared", UNKNOWN)
    checksum = run_settings(run).get(DATA_CHECKSUM)
    if checksum is None and has_split(Path(folder), split):  # a run of before there were checksums
        checksum = data_checksum(Path(folder))
    return settings | {"split": split, "data": checksum or folder}


def count_learned(run: Path, split: str, prepared: Path | None = None) -> int:
    """Return how many of a split's questions a run learned from; 0 where neither folder nor checkpoint says."""
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


def _name(group: ScoredRuns, groups: Sequence[ScoredRuns]) -> str:
    """Return a group's model, with what differs from other groups of that model."""
    others = [other.settings for other in groups if other.model == group.model]
    differing = [key for key, value in group.settings.items() if any(other[key] != value for other in others)]
    texts = [f"{key} {group.settings[key]}" for key in differing]
    if "data" in differing and "prepared" in group.learned_from:
        texts.append(f"prepared {group.learned_from['prepared']}")
    return f"{group.model} ({', '.join(texts)})" if differing else group.model


def summarise(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Return mean scores by model, ready for JSON, with deviations where there are several runs.

    The scores of a single model are also under "model".
    """
    summary: dict[str, Any] = {}
    for name, runs in scores.items():
        keys = [key for key in runs[0] if all(key in run for run in runs)]
        figures = {key: mean_and_deviation([run[key] for run in runs]) for key in keys}
        summary[name] = {key: mean for key, (mean, _) in figures.items()} | {"runs": len(runs)}
        if len(runs) > 1:
            summary[name]["deviation"] = {key: deviation for key, (_, deviation) in figures.items()}
    if len(summary) == 1:
        summary["model"] = next(iter(summary.values()))
    return summary


def table_rows(
    runs: Mapping[str, Sequence[Mapping[str, float]]], columns: Sequence[tuple[str, str]] = COLUMNS
) -> list[list[str]]:
    """Return a row of text for each model, its title first: "mean±deviation", or the mean of a single run.

    >>> table_rows({"baseline": [{"number": 44.0, "all": 64.0}, {"number": 45.0, "all": 64.0}]})
    [['Baseline', '44.50±0.7', '–', '64.00±0.0', '–', '–', '–']]
    """
    return [
        [title_of(model), *(_cell([run[key] for run in scores if key in run]) for _, key in columns)]
        for model, scores in runs.items()
    ]


def title_of(name: str) -> str:
    """Return the title of a model, with what its name adds in brackets.

    >>> title_of("counter (padding published)")
    '+ counting module (padding published)'
    """
    model, space, differing = name.partition(" (")
    return TITLES.get(model, model) + space + differing


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation, which is None for a single value.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def _cell(values: Sequence[float]) -> str:
    if not values:
        return MISSING
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f}±{deviation:.1f}"
