"""Scores of the VQA experiments from their committed answers, with errors over questions and seeds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.files import open_binary
from tallybox.vqa.data.prepare import official_files
from tallybox.vqa.data.questions import QuestionRecord, read_pairs, read_records
from tallybox.vqa.scoring import LARGEST_COUNT, accuracy, count_errors, score, true_count, whole_number

REPLICATES = 2000
SOURCES = {"human": "people's", "template": "templates", "written": "written by us"}

Values = NDArray[np.float64]  # [seeds, questions] of one model


class CountingQuestions(NamedTuple):
    """What the count components are scored on."""

    records: list[QuestionRecord]
    pairs: list[tuple[int, int]]
    source: dict[int, str]  # of each question

    @classmethod
    def read(cls, folder: Path) -> CountingQuestions:
        """Read the validation questions of an experiment that count."""
        files = official_files(folder)["val"]
        records = [one for one in read_records(files.questions, files.annotations) if one.counts]
        ids = {one.question_id for one in records}
        pairs = [(first, second) for first, second in read_pairs(files.pairs).tolist() if {first, second} <= ids]
        with open_binary(files.annotations) as file:
            given = {one["question_id"]: one.get("source") for one in json.load(file)["annotations"]}
        # Experiment B has people's questions alone, and says nothing; in A those that we wrote say nothing.
        unsaid = "written" if any(given.values()) else "human"
        source = {one: given[one] or unsaid for one in ids}
        return cls(records, pairs, source)

    def answers(self, run: Mapping[str, Any]) -> dict[int, str]:
        """Return a run's answers by question."""
        return dict(zip((one.question_id for one in self.records), run["count_answers"], strict=True))

    def at(self, keep: Iterable[int]) -> CountingQuestions:
        """Return some of the questions."""
        kept = set(keep)
        records = [one for one in self.records if one.question_id in kept]
        return CountingQuestions(records, [pair for pair in self.pairs if kept >= {*pair}], self.source)

    def scores(self, answers: Mapping[int, str]) -> dict[str, float]:
        """Return accuracies and errors of answers to at least these questions."""
        given = {one.question_id: answers[one.question_id] for one in self.records}
        return {**score(given, self.records, np.array(self.pairs)), **count_errors(given, self.records)}

    def values(self, runs: Iterable[Mapping[str, Any]], key: str) -> Values:
        """Return what a score averages, for each run and question (or pair): accuracies in percent, or errors."""
        return np.array([self._values(self.answers(run), key) for run in runs])

    def _values(self, answers: Mapping[int, str], key: str) -> list[float]:
        right = {one.question_id: accuracy(answers[one.question_id], one.answers or ()) for one in self.records}
        if key == "pair_count":
            return [100.0 * (right[first] == 1 and right[second] == 1) for first, second in self.pairs]
        if key == "count":
            return [100 * value for value in right.values()]
        truths = [(one.question_id, truth) for one in self.records if (truth := true_count(one)) is not None]
        if key == "count_2_or_more":
            return [100 * right[question] for question, truth in truths if truth > 1]
        if key == "count_mae":
            numbers = [(whole_number(answers[question]) or 0, truth) for question, truth in truths]
            return [float(abs(min(said, LARGEST_COUNT) - min(truth, LARGEST_COUNT))) for said, truth in numbers]
        raise ValueError(key)


def difference(one: Values, other: Values) -> tuple[float, float]:
    """Return how far one model is ahead of another in the mean, and the standard error of that.

    By a paired bootstrap: questions are drawn again, the same for both models, and seeds of each model.

    >>> ahead, error = difference(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [0.0, 1.0]]))
    >>> ahead, 0.1 < error < 0.5
    (0.5, True)
    """
    random = np.random.default_rng(0)
    replicates = []
    for _ in range(REPLICATES):
        questions = random.integers(0, one.shape[1], one.shape[1])
        drawn = [values[random.integers(0, len(values), len(values))][:, questions] for values in (one, other)]
        replicates.append(drawn[0].mean() - drawn[1].mean())
    return float(one.mean() - other.mean()), float(np.std(replicates))


def source_table(
    questions: CountingQuestions, runs: Mapping[str, list[dict[str, Any]]], titles: Mapping[str, str]
) -> str:
    """Return count accuracy by the source of questions in Markdown, with the best constant answer."""
    parts = {name: questions.at(one for one, source in questions.source.items() if source == name) for name in SOURCES}
    parts = {name: part for name, part in parts.items() if part.records} | {"all": questions}
    heads = [f"{SOURCES.get(name, name)} ({len(part.records):,})" for name, part in parts.items()]
    lines = [["Model", *heads], ["---", *["---:"] * len(heads)]]
    constants = {str(number): {one.question_id: str(number) for one in questions.records} for number in range(4)}
    best = max(constants, key=lambda constant: questions.scores(constants[constant])["count"])
    by_part = [part.scores(constants[best])["count"] for part in parts.values()]
    lines.append([f'always "{best}"', *(f"{value:.1f}" for value in by_part)])
    for model, of_model in runs.items():
        means = [np.mean([part.scores(questions.answers(run))["count"] for run in of_model]) for part in parts.values()]
        lines.append([titles.get(model, model), *(f"{mean:.1f}" for mean in means)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
