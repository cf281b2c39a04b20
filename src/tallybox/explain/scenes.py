"""Example scenes: boxes on a canvas, with the attention weights to start from."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tallybox.toy.data import draw_images

CANVAS_WH = (640, 400)
CATS_SCALE = 10
CAT_LABELS = ("tabby", "tabby again", "black", "white")
TOY_SIDE, TOY_BOXES = 400, 10


def cats() -> Tensor:
    """Return the boxes ``[4, 4]`` of three cats, one of them detected twice, as `CAT_LABELS` says."""
    tabby, black, white = [2.0, 5.0, 22.0, 19.0], [28.0, 2.0, 46.0, 17.0], [52.0, 6.0, 70.0, 20.0]
    return torch.tensor([tabby, tabby, black, white])


@dataclass(frozen=True)
class ExampleScene:
    """Boxes on a canvas, to start from."""

    name: str
    label: str
    width: int
    height: int
    boxes: list[list[float]]  # to one decimal, and attention to two, as in the links of the page
    attention: list[float]
    true_count: int | None = None


def example_scenes() -> list[ExampleScene]:
    """Return the scenes that the explorer page offers."""
    boxes = CATS_SCALE * cats()
    boxes[1] += torch.tensor([14.0, 12.0, 14.0, 12.0])  # beside the first, so that both can be seen and dragged
    copies = 3 * [[90.0, 110.0, 260.0, 300.0]] + 3 * [[380.0, 80.0, 540.0, 260.0]]
    left = [[80.0, 90.0, 250.0, 270.0], [120.0, 100.0, 290.0, 285.0], [185.0, 120.0, 360.0, 300.0]]
    right = [[420.0, 60.0, 580.0, 220.0], [430.0, 180.0, 590.0, 340.0]]
    corners = [(40.0 + 120 * column, 70.0 + 160 * row) for row in range(2) for column in range(5)]
    apart = [[x, y, x + 84, y + 100] for x, y in corners]
    return [
        ExampleScene(
            "cats", "Three cats, one of them detected twice", 720, 220, boxes.tolist(), [0.95, 0.8, 0.9, 0.95]
        ),
        ExampleScene("duplicates", "Exact duplicates: two objects, three boxes each", *CANVAS_WH, copies, [0.95] * 6),
        ExampleScene("partial", "Partial overlaps", *CANVAS_WH, left + right, [0.9, 0.8, 0.7, 0.9, 0.6]),
        ExampleScene("uncertain", "Ten uncertain boxes, all apart", *CANVAS_WH, apart, [0.5] * 10),
    ]


def toy_scene(side_length: float, noise: float, seed: int) -> ExampleScene:
    """Draw one image of the toy task, with its true count."""
    generator = torch.Generator().manual_seed(seed)
    setting = torch.tensor([side_length]), torch.tensor([noise])
    toy = draw_images(*setting, images=1, boxes=TOY_BOXES, generator=generator)
    boxes = (TOY_SIDE * toy.boxes[0, 0].double()).round(decimals=1).tolist()
    attention = toy.attention[0, 0].double().round(decimals=2).tolist()
    label = f"Toy task, l = {side_length:g}, q = {noise:g}"
    return ExampleScene("toy", label, TOY_SIDE, TOY_SIDE, boxes, attention, int(toy.count[0, 0]))
