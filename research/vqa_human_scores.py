"""Scores of committed answers, and differences of rows with errors over questions and seeds."""

import collections
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vqa_human_data import tallyqa_records

from tallybox.vqa.data.official import official_files, read_pairs, read_records
from tallybox.vqa.data.questions import ANSWER_TYPES, QuestionRecord
from tallybox.vqa.scoring import LARGEST_COUNT, TRUE_COUNTS, accuracy, true_count, whole_number

REPLICATES = 2000
Values = NDArray[np.float64]  # [seeds, questions] of one row
LESS_IS_BETTER = ("count_mae", "count_rmse")


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of all runs to the same questions, ``said [Q, runs]`` as indices into ``table``."""

    records: list[QuestionRecord]
    pairs: NDArray[np.int64]  # [K, 2] question ids
    table: Sequence[str]
    runs: list[str]  # row-seed
    said: NDArray[np.integer]

    @classmethod
    def read(cls, folder: Path, questions: Path) -> "Answers":
        """Read `answers.npz` of research/vqa_human.py and the validation questions."""
        files = official_files(questions)["val"]
        records = read_records(files.questions, files.annotations)
        with np.load(folder / "answers.npz") as file:
            runs, said = file["runs"].tolist(), file["scored_answers"]
            return cls(records, read_pairs(files.pairs), file["table"].tolist(), runs, said)

    @classmethod
    def of_tallyqa(cls, folder: Path, data: Path, part: str) -> "Answers":
        """Read the answers to TallyQA's questions: of ``val``, or of ``256px`` those that were held out."""
        with np.load(folder / "answers.npz") as file:
            of_id = {record.question_id: record for record in tallyqa_records(data, part)}
            records = [of_id[one] for one in file[f"tallyqa_{part}_ids"].tolist()]
            runs, said = file["runs"].tolist(), file[f"tallyqa_{part}_answers"]
            return cls(records, np.empty((0, 2), np.int64), file["table"].tolist(), runs, said)

    @property
    def rows(self) -> list[str]:
        """The names of the rows."""
        return list(dict.fromkeys(run.rpartition("-")[0] for run in self.runs))

    def values(self, row: str, key: str) -> Values:
        """Return what a score averages, for each seed of a row: accuracies in percent, or errors of counts."""
        of_row = [column for column, run in enumerate(self.runs) if run.rpartition("-")[0] == row]
        values: Values = self._values(key)[:, of_row].T
        return values

    def mean(self, row: str, key: str) -> tuple[float, float]:
        """Return the mean over seeds of a score, and its sample deviation."""
        by_seed = self.values(row, key).mean(1)
        by_seed = np.sqrt(by_seed) if key == "count_rmse" else by_seed
        return float(by_seed.mean()), float(by_seed.std(ddof=1)) if len(by_seed) > 1 else float("nan")

    def difference(self, one: str, other: str, key: str) -> tuple[float, float]:
        """Return how far a row is ahead of another in the mean, and the standard error over questions and seeds."""
        return difference(self.values(one, key), self.values(other, key))

    @cached_property
    def _accuracies(self) -> Values:
        """The official accuracy of each answer in percent, ``[Q, runs]``."""
        values = np.zeros(self.said.shape)
        for row, (record, said) in enumerate(zip(self.records, self.said, strict=True)):
            for answer in np.unique(said):
                values[row, said == answer] = 100 * accuracy(self.table[answer], record.answers or ())
        return values

    @cached_property
    def _truths(self) -> NDArray[np.float64]:
        """The true counts ``[Q]``; not a number where there is none."""
        return np.array([np.nan if (truth := true_count(one)) is None else truth for one in self.records])

    def _values(self, key: str) -> Values:
        counts = np.array([record.counts for record in self.records])
        kinds = np.array([record.answer_type for record in self.records])
        chosen = {"all": np.ones(len(counts), np.bool_), "count": counts}
        chosen |= {kind: kinds == kind for kind in ANSWER_TYPES}
        for name, (low, high) in TRUE_COUNTS.items():
            chosen[name] = (self._truths >= low) & (self._truths <= high)
        if key in chosen:
            return self._accuracies[chosen[key]]
        if key.startswith("pair_"):
            row_of = {record.question_id: row for row, record in enumerate(self.records)}
            pairs = np.array([[row_of[one] for one in pair] for pair in self.pairs.tolist()])
            pairs = pairs[chosen[key.removeprefix("pair_")][pairs].all(1)]
            return 100.0 * (self._accuracies[pairs] > 100 - 1e-9).all(1)
        if key in LESS_IS_BETTER:
            numbers = np.array([whole_number(text) or 0 for text in self.table]).clip(max=LARGEST_COUNT)
            is_known = ~np.isnan(self._truths)
            errors = numbers[self.said[is_known]] - self._truths[is_known, None].clip(max=LARGEST_COUNT)
            return np.abs(errors) if key == "count_mae" else errors**2
        raise ValueError(key)


def difference(one: Values, other: Values) -> tuple[float, float]:
    """Return how far ``one [S, Q]`` is ahead of ``other [T, Q]`` in the mean, and the standard error of that.

    By a paired bootstrap: questions are drawn again, the same for both, and the seeds of each.

    >>> ahead, error = difference(np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [0.0, 1.0]]))
    >>> ahead, 0.1 < error < 0.5
    (0.5, True)
    """
    drawn, random = drawn_questions(one.shape[1]), np.random.default_rng(1)
    means = []
    for values in (one, other):
        seeds = random.integers(0, len(values), (REPLICATES, len(values)))
        means.append(np.take_along_axis(drawn @ values.T, seeds, 1).mean(1))
    return float(one.mean() - other.mean()), float(np.std(means[0] - means[1]))


@cache
def drawn_questions(questions: int) -> NDArray[np.float64]:
    """Return the weight of each question in each replicate, ``[replicates, Q]``: how often it was drawn."""
    random = np.random.default_rng(0)
    counts = (np.bincount(random.integers(0, questions, questions), minlength=questions) for _ in range(REPLICATES))
    return np.stack([*counts]) / questions


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return what research/vqa_human.py wrote about each run."""
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def by_row(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the runs of each row."""
    found = collections.defaultdict(list)
    for result in results:
        found[result["row"]].append(result)
    return dict(found)
