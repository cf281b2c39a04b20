"""The README's picture: four proposals, three cats, and how the component counts 3."""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from tallybox.counter.module import Counter
from tallybox.explain.scenes import CatProposals, cats
from tallybox.plotting import BLUE, GREEN, ORANGE, PURPLE, picture

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)


def draw_cats(path: Path) -> None:
    """Draw the proposals of three cats, the matrices A, D, C and the count."""
    proposals = cats()
    with torch.no_grad():
        trace = Counter(max_objects=4).explain(torch.ones(4), proposals.boxes)
    with picture(path, 11, 2.6) as figure:
        photo, *matrices = figure.subplots(1, 4, width_ratios=(2.4, 1, 1, 1))
        draw_proposals(photo, proposals)
        titles = ("A: both relevant", "D: how distant", "C: edges counted once")
        values = (trace.relevance, trace.distance, trace.count_matrix)
        for axes, title, matrix in zip(matrices, titles, values, strict=True):
            draw_matrix(axes, title, matrix)
        edges, count, total = (value.sum().item() for value in (trace.count_matrix, trace.count, trace.attention))
        text = f"count = √(sum of C) = √{edges:.0f} = {count:.2f}      (summing the weights: {total:.0f})"
        figure.suptitle(text, fontsize=13, fontweight="bold")


def draw_proposals(axes: Axes, proposals: CatProposals) -> None:
    """Draw the boxes; an exact duplicate is drawn slightly larger, so that both lines are seen."""
    boxes = proposals.boxes.tolist()
    for number, (box, colour) in enumerate(zip(boxes, COLOURS, strict=True)):
        x1, y1, x2, y2 = box
        grow = 0.8 * boxes[:number].count(box)
        width, height, style = x2 - x1 + 2 * grow, y2 - y1 + 2 * grow, "--" if grow else "-"
        axes.add_patch(Rectangle((x1 - grow, y1 - grow), width, height, fill=False, ec=colour, lw=2.5, ls=style))
        below = 2.2 if grow else -2.2 if boxes.count(box) > 1 else 0  # labels of duplicates stand one above the other
        x, y, label = (x1 + x2) / 2, (y1 + y2) / 2 + below, f"{number + 1} {proposals.labels[number]}"
        axes.text(x, y, label, color=colour, ha="center", va="center", fontweight="bold")
    axes.set(xlim=(0, proposals.size_wh[0]), ylim=(proposals.size_wh[1], 0), xticks=[], yticks=[], aspect="equal")
    axes.set_title("four proposals, three cats, one found twice")
    axes.spines[:].set_visible(True)


def draw_matrix(axes: Axes, title: str, matrix: Tensor) -> None:
    """Draw a matrix with its values, dark for 1."""
    axes.pcolormesh(matrix.numpy(), cmap="Blues", vmin=0, vmax=1.2)
    axes.set(aspect="equal", ylim=(len(matrix), 0))
    for i, row in enumerate(matrix.tolist()):
        for j, value in enumerate(row):
            colour = "white" if value > 0.6 else "black"
            axes.text(j + 0.5, i + 0.5, f"{value:.2g}", ha="center", va="center", color=colour, fontsize=9)
    ticks, names = [i + 0.5 for i in range(len(matrix))], [str(i + 1) for i in range(len(matrix))]
    axes.set(xticks=ticks, yticks=ticks, xticklabels=names, yticklabels=names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(title)
