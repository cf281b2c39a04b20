"""Every figure of the paper's toy task, from the results of a sweep."""

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tallybox.counter.reference import Activations
from tallybox.errors import InputError
from tallybox.files import atomic_writing
from tallybox.plotting import BLUE, GREEN, ORANGE, SEQUENTIAL, WIDE, add_letters, add_scale, draw_all, panels, picture
from tallybox.presence.weights import calibration_edges
from tallybox.runs import read_config, read_results
from tallybox.toy.data import draw_images
from tallybox.toy.sweep import FIXED_AT

VARIED = {"side_length": "side length $l$", "noise": "noise $q$"}
MODELS = {
    "presence": ("presence counter", GREEN),
    "counter": ("counter", BLUE),
    "baseline": ("sum of the scores", ORANGE),
}
ROLES = [f"$f_{number}$: {name.replace('_', ' ')}" for number, name in enumerate(Activations._fields, start=1)]
# The functions of presence counting, and their arguments.
PRESENCE_FUNCTIONS = {
    r"$\varphi$": "score, shifted, scaled",
    r"$\tau$": "how far $j$ is ahead of $i$",
    r"$\eta$ at score 0.5": "overlap",
    r"$\kappa$ at overlap 0.5": "score of the neighbour",
}
WEIGHT_COLOURS = colormaps["RdBu"]

Results = list[dict[str, Any]]


class Slice(NamedTuple):
    """The results of a sweep at one value of a parameter, ordered by the other, which is varied."""

    varied: str  # side_length or noise
    fixed: float
    results: Results


def read_sweep(folder: Path) -> tuple[float, Results]:
    """Return the side length that a sweep holds fixed while it varies the noise, and the results."""
    for part in read_slices(folder):
        if part.varied == "noise":
            return part.fixed, part.results
    raise InputError(f"{folder} holds a sweep over side lengths only; a sweep over the noise is needed.")


def read_slices(folder: Path) -> list[Slice]:
    """Return the slices of a sweep: the two of the paper's figures, or all of a grid of your own."""
    results = read_results(folder / "results.jsonl")
    if not results:
        raise InputError(f"{folder} has no results of a sweep; run tallybox toy sweep --out {folder}.")
    difficulty = read_config(folder).get("difficulty")
    slices = []
    for varied, other in zip(VARIED, reversed(VARIED), strict=True):
        for fixed in [FIXED_AT[difficulty]] if difficulty else sorted({result[other] for result in results}):
            chosen = [result for result in results if result[other] == fixed]
            if len({result[varied] for result in chosen}) > 1:
                slices.append(Slice(varied, fixed, sorted(chosen, key=itemgetter(varied, "seed"))))
    if not slices:
        raise InputError(f"{folder} holds single settings; figures need at least two values of l or q.")
    return slices


def draw_toy_figures(folder: Path, *, pdf: bool = False) -> list[Path]:
    """Draw the figures of a sweep into its folder ``figures`` and write ``accuracy.csv`` there; return the files."""
    slices = read_slices(folder)
    drawings: dict[str, Callable[[Path], None]] = {
        "accuracy": partial(draw_accuracy, slices=slices),
        "samples": partial(draw_samples, fixed_at=slices[0].fixed),
    }
    with_counter = [part for part in slices if any(result["activations"] for result in part.results)]
    if with_counter:
        drawings["f1_and_f2"] = partial(draw_activations, slices=with_counter[:2], roles=range(2))
    only_one = len({part.varied for part in slices}) == len(slices)
    for part in slices:
        name = part.varied if only_one else f"{part.varied}_at_{part.fixed:g}"
        if part in with_counter:
            drawings[f"activations_{name}"] = partial(draw_activations, slices=[part], roles=range(8))
        if any(result.get("presence") for result in part.results):
            drawings[f"presence_{name}"] = partial(draw_presence_functions, results=part.results, varied=part.varied)
    return [*draw_all(folder / "figures", drawings, pdf=pdf), write_accuracies(folder)]


def write_accuracies(folder: Path) -> Path:
    """Write the accuracies of a sweep as CSV, a row for each setting, seed and model; return the file."""
    path = folder / "figures" / "accuracy.csv"
    with atomic_writing(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["side_length", "noise", "seed", "model", "accuracy"])
        for result in read_results(folder / "results.jsonl"):
            for model, accuracy in result["accuracy"].items():
                writer.writerow([result["side_length"], result["noise"], result["seed"], model, accuracy])
    return path


def draw_accuracy(path: Path, slices: Sequence[Slice]) -> None:
    """Draw the accuracy of each model against l and against q, with the spread over seeds."""
    rows, columns = -(-len(slices) // 2), min(len(slices), 2)
    with picture(path, WIDE, 2.4 * rows) as figure:
        grid = panels(figure, rows, columns)
        for axes, part in zip_longest(grid, slices):
            if part is None:
                axes.set_axis_off()
                continue
            fixed = VARIED["noise" if part.varied == "side_length" else "side_length"]
            for model in part.results[0]["accuracy"]:
                draw_curve(axes, part.results, part.varied, model)
            axes.set(xlabel=VARIED[part.varied], xlim=(0, 1), ylim=(0, 1.02), ylabel="accuracy")
            axes.set_title(f"{fixed} = {part.fixed:g}")
            axes.grid(alpha=0.5)
        add_letters(grid[: len(slices)])
        grid[0].legend(labelcolor="linecolor", handlelength=0)


def draw_curve(axes: Axes, results: Results, varied: str, model: str) -> None:
    """Draw one model's mean over seeds, and a band from the smallest to the largest."""
    by_value: dict[float, list[float]] = defaultdict(list)
    for result in results:
        by_value[result[varied]].append(result["accuracy"][model])
    name, colour = MODELS.get(model, (model, None))
    smallest, largest, means = ([of(shares) for shares in by_value.values()] for of in (min, max, mean))
    (line,) = axes.plot(list(by_value), means, color=colour, label=name)
    axes.fill_between(list(by_value), smallest, largest, color=line.get_color(), alpha=0.25, lw=0)


def emphasis(value: float) -> dict[str, float]:
    """Return the look of a line for a value of the varied parameter: eleven of them are thick."""
    return {"lw": 1.3, "zorder": 3} if abs(10 * value - round(10 * value)) < 1e-6 else {"lw": 0.4, "alpha": 0.35}


def draw_activations(path: Path, slices: Sequence[Slice], roles: range) -> None:
    """Draw activations, a line for each value of the varied parameter (first seed)."""
    columns = 4 if len(slices) * len(roles) > 2 else 2
    rows = len(slices) * len(roles) // columns
    with picture(path, WIDE, 1.75 * rows) as figure:
        grid = axes = panels(figure, rows, columns, narrow=2)
        for part in slices:
            of_slice, axes = axes[: len(roles)], axes[len(roles) :]
            first = part.results[0]["seed"]
            chosen = [result for result in part.results if result["seed"] == first and result["activations"]]
            for role, panel in zip(roles, of_slice, strict=True):
                for result in chosen:
                    value = result[part.varied]
                    draw_role(panel, role, [result["activations"]], color=SEQUENTIAL(value), **emphasis(value))
            add_scale(figure, of_slice, VARIED[part.varied])
        add_letters(grid, size=7)


def draw_role(axes: Axes, role: int, components: Iterable[Sequence[Sequence[float]]], **style: Any) -> None:
    """Draw one of f1 … f8 of components, each given as its activations at their knots."""
    for activations in components:
        axes.plot(np.linspace(0, 1, len(activations[role])), activations[role], **style)
    axes.set(title=ROLES[role], xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    axes.set(xlabel="input", ylabel="output", xticklabels=("0", "0.5", "1"), yticklabels=("0", "0.5", "1"))
    axes.label_outer()


def draw_presence_functions(path: Path, results: Results, varied: str) -> None:
    """Draw φ, τ, η and κ of every head, a line for each value of the varied parameter (first seed)."""
    results = [result for result in results if result["seed"] == results[0]["seed"] and result.get("presence")]
    heads = len(results[0]["presence"]["slope"])
    with picture(path, WIDE, 0.3 + 1.5 * heads) as figure:
        grid = panels(figure, heads, 4, narrow=2, sharey="col")
        for head in range(heads):
            row = grid[4 * head : 4 * head + 4]
            for result in results:
                value = result[varied]
                draw_presence(row, result["presence"], head, color=SEQUENTIAL(value), **emphasis(value))
            label_presence(row, f"output of head {head + 1}")
        add_letters(grid)
        add_scale(figure, grid, VARIED[varied])


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


def label_presence(row: Sequence[Axes], output: str) -> None:
    """Label a head's axes."""
    for axes, (title, label) in zip(row, PRESENCE_FUNCTIONS.items(), strict=True):
        axes.set(xlim=(0, 1), xticks=(0, 0.5, 1), xticklabels=("0", "0.5", "1"), title=title, xlabel=label)
    for axes in row[:3]:
        axes.set(ylim=(0, 1.02), yticks=(0, 0.5, 1), yticklabels=("0", "0.5", "1"))
    row[0].set_ylabel(output)


def draw_samples(path: Path, fixed_at: float) -> None:
    """Draw images of the task as l and as q varies: which boxes are true, their number, and the scores.

    The values are within 0.05 to 0.5, as in the paper. A side length of 0 would show points.
    """
    values = torch.tensor([0.1, 0.3, 0.5] if path.stem.endswith("-narrow") else [0.05, 0.1, 0.2, 0.3, 0.4, 0.5])
    with picture(path, WIDE, 4.5) as figure:
        grid = figure.subplots(4, len(values))
        at_noise, at_side = torch.full_like(values, fixed_at), torch.full_like(values, fixed_at or 0.2)
        for row, (side_length, noise) in enumerate(((values, at_noise), (at_side, values))):
            generator = torch.Generator().manual_seed(row)
            images = draw_images(side_length, noise, images=1, boxes=10, generator=generator)
            truth, data = grid[2 * row : 2 * row + 2]
            for column in range(len(values)):
                draw_sample(truth[column], images.boxes[column, 0], images.is_true[column, 0].float())
                draw_sample(data[column], images.boxes[column, 0], images.attention[column, 0])
                setting = f"$l$ = {side_length[column]:g}, $q$ = {noise[column]:g}"
                truth[column].set_title(setting, fontsize=6.5, loc="center")
                data[column].set_xlabel(f"true count: {images.count[column, 0]}", fontsize=6.5)
            truth[0].set_ylabel("truth")
            data[0].set_ylabel("data")
        add_scale(figure, grid.flat, "score", WEIGHT_COLOURS)


def draw_sample(axes: Axes, boxes: torch.Tensor, weights: torch.Tensor) -> None:
    """Draw one image's boxes ``[N, 4]``, coloured by ``weights [N]``."""
    for (x1, y1, x2, y2), weight in zip(boxes.tolist(), weights.tolist(), strict=True):
        colour = WEIGHT_COLOURS(weight)
        axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colour, lw=1.5))
    axes.set(xlim=(-0.03, 1.03), ylim=(1.03, -0.03), xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(True)
