"""Every figure of the paper's toy task, from the results of a sweep."""

from __future__ import annotations

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

from tallybox.errors import InputError
from tallybox.figures.canvas import BLUE, GREEN, GREY, ORANGE, RAINBOW, add_scale, picture
from tallybox.figures.presence import draw_presence_functions
from tallybox.runs import read_results
from tallybox.toy.data import ToyImages, draw_images
from tallybox.toy.sweep import FIXED_AT, Difficulty

MODELS = {
    "counter": ("the paper's component", BLUE),
    "baseline": ("sum of the weights", ORANGE),
    "presence": ("presence counting", GREEN),
}
VARIED = {"side_length": "side length l", "noise": "noise q"}
ROLES = (
    "f1: relevance, edges",
    "f2: distance, edges",
    "f3: likeness",
    "f4: relevance, rows",
    "f5: distance, rows",
    "f6: certainty of weights",
    "f7: certainty of distances",
    "f8: confidence",
)

Results = list[dict[str, Any]]


def draw_toy_figures(folder: Path, difficulty: Difficulty) -> list[Path]:
    """Draw the figures of a sweep's folder into its folder ``figures``, each as SVG and PNG; return the files."""
    results = read_results(folder / "results.jsonl")
    if not results:
        raise InputError(f"{folder} must hold the results of a sweep, but results.jsonl is missing or empty")
    written = []
    for ending in ("svg", "png"):

        def path(name: str, ending: str = ending) -> Path:
            written.append(folder / "figures" / f"{name}.{ending}")
            return written[-1]

        draw_accuracy(path("accuracy"), results, difficulty)
        for varied in VARIED:
            draw_activations(path(f"activations_{varied}"), results, difficulty, varied, range(8))
            draw_presence_functions(path(f"presence_{varied}"), varied_results(results, difficulty, varied), varied)
        draw_first_activations(path("f1_and_f2"), results, difficulty)
        draw_samples(path("samples"), difficulty)
    return written


def varied_results(results: Results, difficulty: Difficulty, varied: str) -> Results:
    """Return the half of a sweep in which one parameter was varied, in its order."""
    other = "noise" if varied == "side_length" else "side_length"
    chosen = [result for result in results if result[other] == FIXED_AT[difficulty]]
    return sorted(chosen, key=lambda result: (result[varied], result["seed"]))


def draw_accuracy(path: Path, results: Results, difficulty: Difficulty) -> None:
    """Accuracy of each model against l and against q, with the spread over seeds."""
    with picture(path, 9, 3.4) as figure:
        for axes, (varied, label) in zip(figure.subplots(1, 2, sharey=True), VARIED.items(), strict=True):
            for model, (name, colour) in MODELS.items():
                draw_curve(axes, varied_results(results, difficulty, varied), varied, model, name, colour)
            other = VARIED["noise" if varied == "side_length" else "side_length"]
            axes.set(xlabel=label, xlim=(0, 1), ylim=(0, 1.02), title=f"{other} = {FIXED_AT[difficulty]:g}")
            axes.grid(alpha=0.3)
        figure.axes[0].set_ylabel("counts right")
        figure.axes[0].legend(loc="lower left")


def draw_curve(axes: Axes, results: Results, varied: str, model: str, name: str, colour: str) -> None:
    """Draw one model's mean over seeds, and a band from its smallest to its largest."""
    by_value: dict[float, list[float]] = defaultdict(list)
    for result in results:
        if model in result["accuracy"]:
            by_value[result[varied]].append(result["accuracy"][model])
    if not by_value:
        return
    values = list(by_value)
    axes.fill_between(
        values, [min(a) for a in by_value.values()], [max(a) for a in by_value.values()], color=colour, alpha=0.25, lw=0
    )
    axes.plot(values, [mean(a) for a in by_value.values()], color=colour, label=name)


def draw_activations(path: Path, results: Results, difficulty: Difficulty, varied: str, roles: range) -> None:
    """The shapes of all activations, a line for each value of the varied parameter (first seed)."""
    with picture(path, 10, 5.2) as figure:
        axes = figure.subplots(2, 4, sharex=True, sharey=True).flat
        for role in roles:
            draw_rainbow(axes[role], varied_results(results, difficulty, varied), varied, role)
        add_scale(figure, list(axes), VARIED[varied])


def draw_first_activations(path: Path, results: Results, difficulty: Difficulty) -> None:
    """f1 and f2 alone, as l and as q varies."""
    with picture(path, 10, 3) as figure:
        axes = figure.subplots(1, 4, sharex=True, sharey=True)
        for column, varied in enumerate(VARIED):
            pair = axes[2 * column : 2 * column + 2]
            for role in range(2):
                draw_rainbow(pair[role], varied_results(results, difficulty, varied), varied, role)
            add_scale(figure, list(pair), VARIED[varied])


def draw_rainbow(axes: Axes, results: Results, varied: str, role: int) -> None:
    """Draw one activation for every value of the varied parameter, coloured by it."""
    for result in results:
        if result["seed"] == 0:
            knots = result["activations"][role]
            at = [number / (len(knots) - 1) for number in range(len(knots))]
            axes.plot(at, knots, color=RAINBOW(result[varied]), lw=0.7, alpha=0.8)
    axes.set(title=ROLES[role], xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))


def draw_samples(path: Path, difficulty: Difficulty) -> None:
    """Show images of the task: what is true, and what a model sees, as l and as q varies."""
    values = torch.tensor([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])
    fixed = torch.full_like(values, FIXED_AT[difficulty])
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
