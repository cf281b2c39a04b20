"""Example scenes: boxes on a canvas, with the attention weights to start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tallybox.toy.data import draw_images

WIDTH, HEIGHT = 640, 400
TOY_SIDE = 400
TOY_BOXES = 10
CATS_SCALE = 10


@dataclass(frozen=True, eq=False)
class CatProposals:
    """The proposals of the paper's figure 1, with what each of them shows."""

    size_wh: tuple[int, int]
    boxes: Tensor  # [N, 4] corners
    labels: tuple[str, ...]


def cats() -> CatProposals:
    """Return the example of the paper's figure 1: four proposals, three cats, one of them detected twice."""
    tabby, black, white = [2.0, 5.0, 22.0, 19.0], [28.0, 2.0, 46.0, 17.0], [52.0, 6.0, 70.0, 20.0]
    return CatProposals(
        size_wh=(72, 22),
        boxes=torch.tensor([tabby, tabby, black, white]),
        labels=("tabby", "tabby again", "black", "white"),
    )


@dataclass(frozen=True)
class ExampleScene:
    """Boxes on a canvas, to start from."""

    name: str
    label: str
    width: int
    height: int
    boxes: list[list[float]]
    attention: list[float]
    true_count: int | None = None


def example_scenes() -> list[ExampleScene]:
    """Return the scenes that the explorer page offers."""
    width, height = (CATS_SCALE * side for side in cats().size_wh)
    cat_boxes = CATS_SCALE * cats().boxes
    cat_boxes[1] += torch.tensor([14.0, 12.0, 14.0, 12.0])  # beside the first, so that both can be seen and dragged
    first, second = [90, 110, 260, 300], [380, 80, 540, 260]
    partial = [
        [80, 90, 250, 270],
        [120, 100, 290, 285],
        [185, 120, 360, 300],
        [420, 60, 580, 220],
        [430, 180, 590, 340],
    ]
    corners = [(40 + 120 * column, 70 + 160 * row) for row in range(2) for column in range(5)]
    apart = [[x, y, x + 84, y + 100] for x, y in corners]
    return [
        _scene(
            "cats",
            "The paper's cats: four boxes, three cats",
            cat_boxes.tolist(),
            [0.95, 0.8, 0.9, 0.95],
            width,
            height,
        ),
        _scene("duplicates", "Exact duplicates: two objects, three boxes each", [first] * 3 + [second] * 3, [0.95] * 6),
        _scene("partial", "Partial overlaps", partial, [0.9, 0.8, 0.7, 0.9, 0.6]),
        _scene("uncertain", "Ten uncertain boxes, all apart", apart, [0.5] * 10),
    ]


def toy_scene(side_length: float, noise: float, seed: int) -> ExampleScene:
    """Draw one image of the toy task, with its true count."""
    toy = draw_images(
        torch.tensor([side_length]),
        torch.tensor([noise]),
        images=1,
        boxes=TOY_BOXES,
        generator=torch.Generator().manual_seed(seed),
    )
    boxes = (toy.boxes[0, 0] * TOY_SIDE).tolist()
    label = f"Toy task, l = {side_length:g}, q = {noise:g}"
    return _scene("toy", label, boxes, toy.attention[0, 0].tolist(), TOY_SIDE, TOY_SIDE, int(toy.count[0, 0]))


def _scene(
    name: str,
    label: str,
    boxes: Sequence[Sequence[float]],
    attention: Sequence[float],
    width: int = WIDTH,
    height: int = HEIGHT,
    true_count: int | None = None,
) -> ExampleScene:
    """Round as the page does, so that the numbers of a scene survive a link."""
    corners = np.round(np.array(boxes, np.float64), 1).tolist()
    return ExampleScene(name, label, width, height, corners, np.round(attention, 2).tolist(), true_count)
