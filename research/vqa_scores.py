"""Scores of the VQA experiments from their committed answers, with errors over questions and seeds."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.files import open_binary
from tallybox.vqa.data.official import official_files, read_pairs, read_records
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.scoring import ANSWER_TYPES, LARGEST_COUNT, accuracy, all_scores, true_count, whole_number

REPLICATES = 2000
YES, NO, UNDECIDED = "yes", "**no**", "not decided"
SOURCES = {"human": "people's", "template": "templates", "written": "written by us"}

Values = NDArray[np.float64]  # [seeds, questions] of one model


class ValidationQuestions(NamedTuple):
    """What the models of an experiment are scored on."""

    records: list[QuestionRecord]
    pairs: list[tuple[int, int]]
    source: dict[int, str]  # of each question

    @classmethod
    def read(cls, folder: Path) -> "ValidationQuestions":
        """Read the validation questions of an experiment."""
        files = official_files(folder)["val"]
        records = read_records(files.questions, files.annotations)
        pairs = [(first, second) for first, second in read_pairs(files.pairs).tolist()]
        with open_binary(files.annotations) as file:
            given = {one["question_id"]: one.get("source") for one in json.load(file)["annotations"]}
        # Experiment B has people's questions alone, and says nothing; in A those that we wrote say nothing.
        unsaid = "written" if any(given.values()) else "human"
        return cls(records, pairs, {one: source or unsaid for one, source in given.items()})

    def answers(self, run: Mapping[str, Any]) -> dict[int, str]:
        """Return a run's answers by question."""
        return dict(zip((one.question_id for one in self.records), run["answers"], strict=True))

    def counting(self, source: str | None = None) -> "ValidationQuestions":
        """Return the counting questions, all of them or those of one source."""
        records = [one for one in self.records if one.counts and source in (None, self.source[one.question_id])]
        kept = {one.question_id for one in records}
        return ValidationQuestions(records, [pair for pair in self.pairs if kept >= {*pair}], self.source)

    def scores(self, answers: Mapping[int, str]) -> dict[str, float]:
        """Return accuracies and errors of answers to at least these questions."""
        given = {one.question_id: answers[one.question_id] for one in self.records}
        return all_scores(given, self.records, self.pairs)

    def values(self, runs: Iterable[Mapping[str, Any]], key: str) -> Values:
        """Return what a score averages, for each run and question (or pair): accuracies in percent, or errors."""
        return np.array([self._values(self.answers(run), key) for run in runs])

    def _values(self, answers: Mapping[int, str], key: str) -> list[float]:
        if key in ANSWER_TYPES:
            kept = [one for one in self.records if one.answer_type == key]
            return [100 * accuracy(answers[one.question_id], one.answers or ()) for one in kept]
        counting = self.counting()
        right = {one.question_id: accuracy(answers[one.question_id], one.answers or ()) for one in counting.records}
        if key == "pair_count":
            return [100.0 * (right[first] == 1 and right[second] == 1) for first, second in counting.pairs]
        if key == "count":
            return [100 * value for value in right.values()]
        truths = [(one.question_id, truth) for one in counting.records if (truth := true_count(one)) is not None]
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


def reached(beyond: float, error: float) -> str:
    """Return whether a goal is reached that a difference is ``beyond``: two standard errors decide, either way.

    >>> reached(0.5, 0.2), reached(-0.5, 0.2), reached(0.5, 0.3)
    ('yes', '**no**', 'not decided')
    """
    if abs(beyond) <= 2 * error:
        return UNDECIDED
    return YES if beyond > 0 else NO


def source_table(
    questions: ValidationQuestions, runs: Mapping[str, list[dict[str, Any]]], titles: Mapping[str, str]
) -> str:
    """Return count accuracy by the source of questions in Markdown, with the best constant answer."""
    counting = questions.counting()
    parts = {name: questions.counting(name) for name in SOURCES}
    parts = {name: part for name, part in parts.items() if part.records} | {"all": counting}
    heads = [f"{SOURCES.get(name, name)} ({len(part.records):,})" for name, part in parts.items()]
    lines = [["Model", *heads], ["---", *["---:"] * len(heads)]]
    constants = {str(number): {one.question_id: str(number) for one in counting.records} for number in range(4)}
    best = max(constants, key=lambda constant: counting.scores(constants[constant])["count"])
    by_part = [part.scores(constants[best])["count"] for part in parts.values()]
    lines.append([f'always "{best}"', *(f"{value:.1f}" for value in by_part)])
    for model, of_model in runs.items():
        means = [np.mean([part.scores(questions.answers(run))["count"] for run in of_model]) for part in parts.values()]
        lines.append([titles.get(model, model), *(f"{mean:.1f}" for mean in means)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
