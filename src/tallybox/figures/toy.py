"""Every figure of the paper's toy task, from the results of a sweep."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from tallybox.counter.reference import Activations
from tallybox.errors import InputError
from tallybox.figures.canvas import BLUE, GREEN, GREY, ORANGE, SEQUENTIAL, add_scale, picture
from tallybox.figures.presence import VARIED, draw_presence_functions
from tallybox.runs import read_results
from tallybox.toy.data import ToyImages, draw_images
from tallybox.toy.sweep import FIXED_AT

MODELS = {
    "counter": ("the paper's component", BLUE),
    "baseline": ("sum of the weights", ORANGE),
    "presence": ("presence counting", GREEN),
}
ROLES = [f"f{number}: {name.replace('_', ' ')}" for number, name in enumerate(Activations._fields, start=1)]

Results = list[dict[str, Any]]


def draw_toy_figures(folder: Path) -> list[Path]:
    """Draw the figures of a sweep's folder into its folder ``figures``, each as SVG and PNG; return the files."""
    config = folder / "config.json"
    if not config.exists():
        raise InputError(f"{folder} must be the folder of a sweep, but it has no config.json; run tallybox toy sweep")
    fixed = FIXED_AT[json.loads(config.read_text())["config"]["difficulty"]]
    results = read_results(folder / "results.jsonl")
    if not results:
        raise InputError(f"{folder} must hold the results of a sweep, but results.jsonl is missing or empty")
    halves = {varied: half_of_sweep(results, varied, fixed) for varied in VARIED}
    written = []
    for ending in ("svg", "png"):

        def path(name: str, ending: str = ending) -> Path:
            written.append(folder / "figures" / f"{name}.{ending}")
            return written[-1]

        draw_accuracy(path("accuracy"), halves, fixed)
        for varied, half in halves.items():
            draw_activations(path(f"activations_{varied}"), {varied: half}, range(8))
            draw_presence_functions(path(f"presence_{varied}"), half, varied)
        draw_activations(path("f1_and_f2"), halves, range(2))
        draw_samples(path("samples"), fixed)
    return written


def half_of_sweep(results: Results, varied: str, fixed: float) -> Results:
    """Return the half of a sweep in which one parameter was varied, ordered by it."""
    (other,) = VARIED.keys() - {varied}
    chosen = [result for result in results if result[other] == fixed]
    return sorted(chosen, key=lambda result: (result[varied], result["seed"]))


def draw_accuracy(path: Path, halves: dict[str, Results], fixed: float) -> None:
    """Accuracy of each model against l and against q, with the spread over seeds."""
    with picture(path, 9, 3.4) as figure:
        for axes, (varied, half) in zip(figure.subplots(1, 2, sharey=True), halves.items(), strict=True):
            for model, (name, colour) in MODELS.items():
                draw_curve(axes, half, varied, model, name, colour)
            (other,) = VARIED.keys() - {varied}
            axes.set(xlabel=VARIED[varied], xlim=(0, 1), ylim=(0, 1.02), title=f"{VARIED[other]} = {fixed:g}")
            axes.grid(alpha=0.3)
        figure.axes[0].set_ylabel("counts right")
        figure.axes[0].legend(loc="lower left")


def draw_curve(axes: Axes, results: Results, varied: str, model: str, name: str, colour: str) -> None:
    """Draw one model's mean over seeds, and a band from the smallest to the largest."""
    by_value: dict[float, list[float]] = defaultdict(list)
    for result in results:
        if model in result["accuracy"]:
            by_value[result[varied]].append(result["accuracy"][model])
    if not by_value:
        return
    values, accuracies = list(by_value), by_value.values()
    axes.fill_between(
        values, [min(a) for a in accuracies], [max(a) for a in accuracies], color=colour, alpha=0.25, lw=0
    )
    axes.plot(values, [mean(a) for a in accuracies], color=colour, label=name)


def draw_activations(path: Path, halves: dict[str, Results], roles: range) -> None:
    """The shapes of activations, a line for each value of the varied parameter (first seed)."""
    rows = len(halves) * len(roles) // 4
    with picture(path, 10, 5.2 if rows == 2 else 3) as figure:
        axes = list(figure.subplots(rows, 4, sharex=True, sharey=True).flat)
        for varied, half in halves.items():
            own, axes = axes[: len(roles)], axes[len(roles) :]
            for role in roles:
                draw_activation(own[role], half, varied, role)
            add_scale(figure, own, VARIED[varied])


def draw_activation(axes: Axes, results: Results, varied: str, role: int) -> None:
    """Draw one activation for every value of the varied parameter, coloured by it."""
    for result in results:
        if result["seed"] == 0:
            knots = result["activations"][role]
            x = [number / (len(knots) - 1) for number in range(len(knots))]
            axes.plot(x, knots, color=SEQUENTIAL(result[varied]), lw=0.7, alpha=0.8)
    axes.set(title=ROLES[role], xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))


def draw_samples(path: Path, fixed_at: float) -> None:
    """Images of the task: which boxes are true, and what a model sees, as l and as q varies."""
    values = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
    fixed = torch.full_like(values, fixed_at)
    with picture(path, 10, 6.6) as figure:
        grid = figure.subplots(4, len(values))
        for row, (side_length, noise) in enumerate(((values, fixed), (fixed, values))):
            generator = torch.Generator().manual_seed(row)
            images = draw_images(side_length, noise, images=1, boxes=10, generator=generator)
            for column in range(len(values)):
                truth, data = grid[2 * row][column], grid[2 * row + 1][column]
                draw_sample(truth, images, column, seen=False)
                draw_sample(data, images, column, seen=True)
                truth.set_title(f"l = {side_length[column]:g}, q = {noise[column]:g}", fontsize=9)
            grid[2 * row][0].set_ylabel("truth")
            grid[2 * row + 1][0].set_ylabel("data")
        scale = ScalarMappable(Normalize(0, 1), colormaps["RdBu"])
        figure.colorbar(
            scale, ax=grid.ravel().tolist(), label="weight (truth: 1 for a true box, 0 for an irrelevant one)"
        )


def draw_sample(axes: Axes, images: ToyImages, setting: int, *, seen: bool) -> None:
    """Draw one image's boxes, coloured by their weights or by whether they are true."""
    weights = images.attention[setting, 0] if seen else images.is_true[setting, 0].float()
    for box, weight in zip(images.boxes[setting, 0].tolist(), weights.tolist(), strict=True):
        x1, y1, x2, y2 = box
        colour = colormaps["RdBu"](weight)
        axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, facecolor=(*colour[:3], 0.25), edgecolor=colour, lw=1.5))
        if x2 - x1 < 0.01:
            axes.plot((x1 + x2) / 2, (y1 + y2) / 2, "s", color=colour, markeredgecolor=GREY, markersize=5, mew=0.4)
    axes.set(xlim=(-0.03, 1.03), ylim=(1.03, -0.03), xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(True)
