"""Scores of several runs in the layout of the paper's second table: mean and sample deviation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

GROUPS = {
    "VQA accuracy": {"Number": "number", "Count": "count", "All": "all"},
    "Balanced pair accuracy": {"Number": "pair_number", "Count": "pair_count", "All": "pair_all"},
}
COLUMNS = [(name, key) for columns in GROUPS.values() for name, key in columns.items()]
ABSENT = "–"
NAMES = {"baseline": "Baseline", "nms": "+ NMS", "counting": "+ counting module", "presence": "+ presence counter"}


def table_rows(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> list[list[str]]:
    """Return a row of text for each model, its name first: "mean±deviation", or the mean where one run is all there is.

    >>> table_rows({"baseline": [{"number": 44.0, "all": 64.0}, {"number": 45.0, "all": 64.0}]})
    [['Baseline', '44.50±0.7', '–', '64.00±0.0', '–', '–', '–']]
    """
    return [
        [NAMES.get(model, model), *(_cell([run[key] for run in scores if key in run]) for _, key in COLUMNS)]
        for model, scores in runs.items()
    ]


def markdown_table(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Return the table in Markdown, where a header is one line.

    >>> print(markdown_table({"nms": [{"all": 64.8}]}).splitlines()[0])
    | Model | Number | Count | All | Pair number | Pair count | Pair all |
    """
    single = [name if number < 3 else f"Pair {name.lower()}" for number, (name, _) in enumerate(COLUMNS)]
    lines = [["Model", *single], ["---", *["---:"] * len(COLUMNS)], *table_rows(runs)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation, which one value does not have.

    >>> mean_and_deviation([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return math.fsum(values) / len(values), deviation


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ABSENT
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f}±{deviation:.1f}"
