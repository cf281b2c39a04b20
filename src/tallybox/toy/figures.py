"""Every figure of the paper's toy task, from the results of a sweep."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tallybox.counter.reference import Activations
from tallybox.errors import InputError
from tallybox.plotting import BLUE, GREEN, GREY, ORANGE, SEQUENTIAL, add_scale, draw_all, picture
from tallybox.presence.weights import calibration_edges
from tallybox.runs import read_results
from tallybox.toy.data import draw_images
from tallybox.toy.sweep import FIXED_AT

VARIED = {"side_length": "side length l", "noise": "noise q"}
MODELS = {
    "counter": ("the paper's component", BLUE),
    "baseline": ("sum of the weights", ORANGE),
    "presence": ("presence counting", GREEN),
}
ROLES = [f"f{number}: {name.replace('_', ' ')}" for number, name in enumerate(Activations._fields, start=1)]
# The functions of presence counting, and their arguments.
PRESENCE_FUNCTIONS = {
    "φ": "score, shifted and scaled",
    "τ": "how far j is ahead of i",
    "η at a middling score": "overlap",
    "κ at an overlap of one half": "score of the neighbour",
}
WEIGHT_COLOURS = colormaps["RdBu"]

Results = list[dict[str, Any]]


def read_sweep(folder: Path) -> tuple[float, Results]:
    """Return the value of the parameter that a sweep did not vary, and the results."""
    config = folder / "config.json"
    if not config.exists():
        raise InputError(f"{folder} must be the folder of a sweep, but it has no config.json; run tallybox toy sweep")
    results = read_results(folder / "results.jsonl")
    if not results:
        raise InputError(f"{folder} must hold the results of a sweep, but results.jsonl is missing or empty")
    return FIXED_AT[json.loads(config.read_text())["config"]["difficulty"]], results


def draw_toy_figures(folder: Path) -> list[Path]:
    """Draw the figures of a sweep's folder into its folder ``figures``, each as SVG and PNG; return the files."""
    fixed, results = read_sweep(folder)
    halves = {varied: half_of_sweep(results, varied, fixed) for varied in VARIED}
    drawings: dict[str, Callable[[Path], None]] = {
        "accuracy": partial(draw_accuracy, halves=halves, fixed=fixed),
        "f1_and_f2": partial(draw_activations, halves=halves, roles=range(2)),
        "samples": partial(draw_samples, fixed_at=fixed),
    }
    for varied, half in halves.items():
        drawings[f"activations_{varied}"] = partial(draw_activations, halves={varied: half}, roles=range(8))
        if any(result.get("presence") for result in half):
            drawings[f"presence_{varied}"] = partial(draw_presence_functions, results=half, varied=varied)
    return draw_all(folder / "figures", drawings)


def half_of_sweep(results: Results, varied: str, fixed: float) -> Results:
    """Return the half of a sweep in which one parameter was varied, ordered by it."""
    (other,) = VARIED.keys() - {varied}
    chosen = [result for result in results if result[other] == fixed]
    return sorted(chosen, key=lambda result: (result[varied], result["seed"]))


def draw_accuracy(path: Path, halves: dict[str, Results], fixed: float) -> None:
    """Draw the accuracy of each model against l and against q, with the spread over seeds."""
    with picture(path, 9, 3.4) as figure:
        for axes, (varied, half) in zip(figure.subplots(1, 2, sharey=True), halves.items(), strict=True):
            for model in MODELS:
                draw_curve(axes, half, varied, model)
            (other,) = VARIED.keys() - {varied}
            axes.set(xlabel=VARIED[varied], xlim=(0, 1), ylim=(0, 1.02), title=f"{VARIED[other]} = {fixed:g}")
            axes.grid(alpha=0.3)
        figure.axes[0].set_ylabel("counts right")
        figure.axes[0].legend(loc="lower left")


def draw_curve(axes: Axes, results: Results, varied: str, model: str) -> None:
    """Draw one model's mean over seeds, and a band from the smallest to the largest."""
    by_value: dict[float, list[float]] = defaultdict(list)
    for result in results:
        if model in result["accuracy"]:
            by_value[result[varied]].append(result["accuracy"][model])
    if not by_value:
        return
    name, colour = MODELS[model]
    smallest, largest, means = ([of(shares) for shares in by_value.values()] for of in (min, max, mean))
    axes.fill_between(list(by_value), smallest, largest, color=colour, alpha=0.25, lw=0)
    axes.plot(list(by_value), means, color=colour, label=name)


def draw_activations(path: Path, halves: dict[str, Results], roles: range) -> None:
    """Draw activations, a line for each value of the varied parameter (first seed)."""
    rows = len(halves) * len(roles) // 4
    with picture(path, 10, 5.2 if rows == 2 else 3) as figure:
        axes = list(figure.subplots(rows, 4, sharex=True, sharey=True).flat)
        for varied, half in halves.items():
            panels, axes = axes[: len(roles)], axes[len(roles) :]
            for role in roles:
                lines = [(result["activations"], SEQUENTIAL(result[varied])) for result in half if result["seed"] == 0]
                draw_role(panels[role], role, lines, lw=0.7, alpha=0.8)
            add_scale(figure, panels, VARIED[varied])


def draw_role(axes: Axes, role: int, lines: Iterable[tuple[Sequence[Sequence[float]], Any]], **style: Any) -> None:
    """Draw one of f1 … f8 of several components, each given as its activations at their knots and a colour."""
    for activations, colour in lines:
        axes.plot(np.linspace(0, 1, len(activations[role])), activations[role], color=colour, **style)
    axes.set(title=ROLES[role], xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))


def draw_presence_functions(path: Path, results: Results, varied: str) -> None:
    """Draw φ, τ, η and κ of every head, a line for each value of the varied parameter (first seed)."""
    results = [result for result in results if result["seed"] == 0 and result.get("presence")]
    heads = len(results[0]["presence"]["slope"])
    with picture(path, 10, 0.8 + 2.2 * heads) as figure:
        grid = figure.subplots(heads, 4, squeeze=False)
        for head, row in enumerate(grid):
            for result in results:
                draw_presence(row, result["presence"], head, color=SEQUENTIAL(result[varied]), lw=0.7, alpha=0.8)
            label_presence(row, head, last=head == heads - 1)
        add_scale(figure, grid.flat, VARIED[varied])


def draw_presence(row: Iterable[Axes], functions: dict[str, Any], head: int, **style: Any) -> None:
    """Draw the functions of a head; η is drawn at a score of one half, κ at an IoU of one half."""
    of_head = {name: values[head] for name, values in functions.items()}
    order, overlap = of_head["order"], of_head["overlap"]
    segments, middle, half = len(order) - 1, (len(order) - 1) // 2, round((len(overlap) - 1) / 2)
    edges = calibration_edges(segments, torch.zeros(())).tolist()
    # The order has a step in the middle, where both scores are equal.
    ahead = [number / segments for number in (*range(middle + 1), *range(middle, segments + 1))]
    ordered = [*order[: middle + 1], *(value + of_head["step"] for value in order[middle:])]
    cells, by_overlap = np.linspace(0, 1, len(overlap)).tolist(), [by_score[half] for by_score in overlap]
    x_values = (edges, ahead, cells, cells)
    y_values = (of_head["calibration"], ordered, by_overlap, of_head["evidence"][half])
    for axes, x, y in zip(row, x_values, y_values, strict=True):
        axes.plot(x, y, **style)


def label_presence(row: Sequence[Axes], head: int, *, last: bool) -> None:
    """Label a head's axes."""
    for axes, (title, label) in zip(row, PRESENCE_FUNCTIONS.items(), strict=True):
        axes.set(xlim=(0, 1), xticks=(0, 0.5, 1), title=title if head == 0 else "", xlabel=label if last else "")
    for axes in row[:3]:
        axes.set(ylim=(0, 1.02), yticks=(0, 0.5, 1))
    row[0].set_ylabel(f"head {head + 1}")


def draw_samples(path: Path, fixed_at: float) -> None:
    """Draw images of the task as l and as q varies: which boxes are true, and the weights that a model sees."""
    values = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
    fixed = torch.full_like(values, fixed_at)
    with picture(path, 10, 6.6) as figure:
        grid = figure.subplots(4, len(values))
        for row, (side_length, noise) in enumerate(((values, fixed), (fixed, values))):
            generator = torch.Generator().manual_seed(row)
            images = draw_images(side_length, noise, images=1, boxes=10, generator=generator)
            truth, data = grid[2 * row : 2 * row + 2]
            for column in range(len(values)):
                draw_sample(truth[column], images.boxes[column, 0], images.is_true[column, 0].float())
                draw_sample(data[column], images.boxes[column, 0], images.attention[column, 0])
                truth[column].set_title(f"l = {side_length[column]:g}, q = {noise[column]:g}", fontsize=9)
            truth[0].set_ylabel("truth")
            data[0].set_ylabel("data")
        label = "weight (truth: 1 for a true box, 0 for an irrelevant one)"
        add_scale(figure, grid.flat, label, WEIGHT_COLOURS)


def draw_sample(axes: Axes, boxes: torch.Tensor, weights: torch.Tensor) -> None:
    """Draw one image's boxes ``[N, 4]``, coloured by ``weights [N]``."""
    for (x1, y1, x2, y2), weight in zip(boxes.tolist(), weights.tolist(), strict=True):
        colour = WEIGHT_COLOURS(weight)
        axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, facecolor=(*colour[:3], 0.25), edgecolor=colour, lw=1.5))
        if x2 - x1 < 0.01:
            axes.plot((x1 + x2) / 2, (y1 + y2) / 2, "s", color=colour, markeredgecolor=GREY, markersize=5, mew=0.4)
    axes.set(xlim=(-0.03, 1.03), ylim=(1.03, -0.03), xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(True)
