"""Draw the functions that presence counting has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes

from tallybox.figures.canvas import SEQUENTIAL, add_scale, picture
from tallybox.presence.weights import calibration_edges

VARIED = {"side_length": "side length l", "noise": "noise q"}
# Functions of two numbers are drawn at a score of one half, or at an IoU of one half.
HALF = 0.5

Lines = tuple[list[float], list[float]]


def draw_presence_functions(path: Path, results: list[dict[str, Any]], varied: str) -> None:
    """Draw φ, τ, η and κ of every head, a line for each value of the varied parameter (first seed)."""
    results = [result for result in results if result["seed"] == 0 and result.get("presence")]
    if not results:
        return
    heads = len(results[0]["presence"]["slope"])
    with picture(path, 10, 0.8 + 2.2 * heads) as figure:
        grid = figure.subplots(heads, 4, squeeze=False)
        for head in range(heads):
            for result in results:
                colour = SEQUENTIAL(result[varied])
                for axes, (x, y) in zip(grid[head], lines(result["presence"], head), strict=True):
                    axes.plot(x, y, color=colour, lw=0.7, alpha=0.8)
            decorate(list(grid[head]), head, last=head == heads - 1)
        add_scale(figure, grid.ravel().tolist(), VARIED[varied])


def lines(functions: dict[str, Any], head: int) -> list[Lines]:
    """Return where each function of a head is drawn, and its values there."""
    calibration, order = functions["calibration"][head], functions["order"][head]
    segments = len(order) - 1
    edges = calibration_edges(segments, torch.zeros(())).tolist()
    even = [number / segments for number in range(segments + 1)]
    step = functions["step"][head]
    middle = segments // 2
    # The step is in the middle, where both scores are equal.
    ahead = [*even[: middle + 1], *even[middle:]]
    ordered = [*order[: middle + 1], *(value + step for value in order[middle:])]
    overlap, evidence = functions["overlap"][head], functions["evidence"][head]
    cells = len(overlap) - 1
    at = [number / cells for number in range(cells + 1)]
    by_overlap = [row[round(HALF * cells)] for row in overlap]
    return [(edges, calibration), (ahead, ordered), (at, by_overlap), (at, evidence[round(HALF * cells)])]


def decorate(row: list[Axes], head: int, *, last: bool) -> None:
    """Label a head's axes."""
    titles = ("φ", "τ", "η at a middling score", "κ at an overlap of one half")
    below = ("score, shifted and scaled", "how far j is ahead of i", "overlap", "score of the neighbour")
    for axes, title, label in zip(row, titles, below, strict=True):
        axes.set(xlim=(0, 1), xticks=(0, 0.5, 1), title=title if head == 0 else "", xlabel=label if last else "")
    for axes in row[:3]:
        axes.set(ylim=(0, 1.02), yticks=(0, 0.5, 1))
    row[0].set_ylabel(f"head {head + 1}")
