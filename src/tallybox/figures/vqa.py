"""How a trained model answers counting questions, in the layout of the paper's last appendix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tallybox.figures.canvas import BLUE, picture


def draw_examples(examples: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw a row for each example that `tallybox.vqa.examples` returns: its boxes, A, D and C, count and answers."""
    with picture(path, 11, 2.5 * len(examples)) as figure:
        rows = figure.subplots(len(examples), 5, width_ratios=(1.8, 1, 1, 1, 1.1), squeeze=False)
        for axes, example in zip(rows, examples, strict=True):
            draw_boxes(axes[0], example)
            for panel, name in zip(axes[1:4], ("A", "D", "C"), strict=True):
                panel.imshow(example[name], cmap="gray", vmin=0, vmax=1)
                panel.set_title(name)
                panel.set(xticks=[], yticks=[])
            write_answers(axes[4], example)


def draw_boxes(axes: Axes, example: Mapping[str, Any]) -> None:
    """Draw the boxes that the component kept, the stronger the more it attends to them."""
    width, height = example["size_wh"]
    for (x1, y1, x2, y2), weight in zip(example["boxes"], example["attention"], strict=True):
        corner, size = (x1, y1), (x2 - x1, y2 - y1)
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=BLUE, linewidth=2, alpha=0.1 + 0.9 * weight))
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    axes.set_title(example["question"])


def write_answers(axes: Axes, example: Mapping[str, Any]) -> None:
    """Write the count, what the model answers and what people answered."""
    truth = "unknown" if example["truth"] is None else example["truth"]
    lines = f"c = {example['count']:.2f}\n\npredicted: {example['prediction']}\nground truth: {truth}"
    axes.text(0, 0.5, lines, va="center", transform=axes.transAxes)
    axes.axis("off")
