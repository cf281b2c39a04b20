"""Ready-made scenes for the explorer page: boxes on a canvas, with the weights to start from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tallybox.scenes import cats
from tallybox.toy.data import draw_images

ReadyScene = dict[str, Any]

WIDTH, HEIGHT = 640, 400
TOY_SIDE = 400
TOY_BOXES = 10


def ready_scenes() -> list[ReadyScene]:
    """Return the scenes by which the methods are best understood."""
    return [
        _scene("cats", "The paper's cats: four boxes, three cats", *_cats(), [1.0, 1.0, 1.0, 1.0]),
        _scene(
            "duplicates", "Exact duplicates: two objects, three boxes each", WIDTH, HEIGHT, _duplicates(), [0.95] * 6
        ),
        _scene("partial", "Partial overlaps", WIDTH, HEIGHT, _partial(), [0.9, 0.8, 0.7, 0.9, 0.6]),
        _scene("uncertain", "Ten uncertain boxes, all apart", WIDTH, HEIGHT, _apart(), [0.5] * 10),
    ]


def toy_scene(side_length: float, noise: float, seed: int) -> ReadyScene:
    """Draw one image of the toy task; ``true_count`` is what a model should say."""
    toy = draw_images(
        torch.tensor([side_length]),
        torch.tensor([noise]),
        images=1,
        boxes=TOY_BOXES,
        generator=torch.Generator().manual_seed(seed),
    )
    boxes = (toy.boxes[0, 0] * TOY_SIDE).tolist()
    label = f"Toy task, l = {side_length:g}, q = {noise:g}"
    return {
        **_scene("toy", label, TOY_SIDE, TOY_SIDE, boxes, toy.attention[0, 0].tolist()),
        "true_count": int(toy.count[0, 0]),
    }


def _scene(
    name: str, label: str, width: int, height: int, boxes: list[list[float]], attention: list[float]
) -> ReadyScene:
    """Round as the page does, so that a scene's numbers survive a link."""
    return {
        "name": name,
        "label": label,
        "width": width,
        "height": height,
        "boxes": np.round(boxes, 1).tolist(),
        "attention": np.round(attention, 3).tolist(),
    }


def _cats() -> tuple[int, int, list[list[float]]]:
    scene, times = cats(), 10
    return scene.size_wh[0] * times, scene.size_wh[1] * times, (scene.boxes * times).tolist()


def _duplicates() -> list[list[float]]:
    return [[90.0, 110.0, 260.0, 300.0]] * 3 + [[380.0, 80.0, 540.0, 260.0]] * 3


def _partial() -> list[list[float]]:
    return [
        [80.0, 90.0, 250.0, 270.0],
        [120.0, 100.0, 290.0, 285.0],
        [185.0, 120.0, 360.0, 300.0],
        [420.0, 60.0, 580.0, 220.0],
        [430.0, 180.0, 590.0, 340.0],
    ]


def _apart() -> list[list[float]]:
    places = [(40 + 120 * column, 70 + 160 * row) for row in range(2) for column in range(5)]
    return [[float(x), float(y), x + 84.0, y + 100.0] for x, y in places]
