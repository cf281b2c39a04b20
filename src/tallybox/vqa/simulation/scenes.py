"""Scenes: groups of things of a kind, standing on something, among clutter.

How many things a scene shows in all is drawn without regard to how many there are of a kind: clutter makes up the
rest. So neither the number of things nor that of proposals tells how many of a kind there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallybox.boxes import numpy_box_iou
from tallybox.vqa.simulation.world import CLASS_OF, CLUTTER, COLOURS, DIGITS, SIZE_WH, SIZES, SUPPORTS, World

GROUPS = 2
COUNTS = np.array([0.3, 0.24, 0.2, 0.15, 0.11])  # of 1 to 5 things of a kind
THINGS = (11, 14)  # in all, the fewest and one more than the most
SAME_FOR_ALL = 0.75  # how often a group has one colour
SIDE_OF = {"small": (44, 66), "large": (72, 104)}  # pixels
CANDIDATES = 24  # places that are tried for each thing


@dataclass(frozen=True)
class Thing:
    """One object; clutter has a kind that nobody asks about and no attributes."""

    kind: str
    box_xyxy: NDArray[np.float64]  # [4] pixels
    colour: str | None = None
    size: str | None = None
    digit: str | None = None
    support: str | None = None


@dataclass(frozen=True)
class Scene:
    """One photo: its groups by kind, the clutter, and what the groups stand on."""

    image_id: int
    groups: dict[str, list[Thing]]
    clutter: list[Thing]
    supports: dict[str, NDArray[np.float64]]  # by name, [4] pixels

    def count(self, kind: str, colour: str | None = None, size: str | None = None) -> int:
        """Return how many things of a kind there are, of one colour or size where named."""
        return sum(colour in (None, thing.colour) and size in (None, thing.size) for thing in self.groups.get(kind, ()))


def draw_scene(image_id: int, world: World, random: np.random.Generator) -> Scene:
    """Draw what is in a photo and where."""
    kinds = random.choice(list(CLASS_OF), size=GROUPS, replace=False).tolist()
    supports = random.choice(SUPPORTS, size=GROUPS, replace=False).tolist()
    counts = (random.choice(len(COUNTS), size=GROUPS, p=COUNTS) + 1).tolist()
    clutter = int(random.integers(*THINGS)) - sum(counts)
    placed = Places(world, random)
    groups = {}
    for kind, support, count in zip(kinds, supports, counts, strict=True):
        colours = random.choice(COLOURS, size=count).tolist()
        if random.random() < SAME_FOR_ALL:
            colours = colours[:1] * count
        digit = str(random.choice(DIGITS)) if CLASS_OF[kind] == "vehicle" else None
        sizes = random.choice(SIZES, size=count).tolist()
        groups[kind] = [
            Thing(kind, placed.find(size), colour, size, digit, support)
            for colour, size in zip(colours, sizes, strict=True)
        ]
    stuff = [Thing(str(random.choice(CLUTTER)), placed.find(str(random.choice(SIZES)))) for _ in range(max(clutter, 1))]
    return Scene(image_id, groups, stuff, {name: _broad_box(random) for name in supports})


class Places:
    """Finds places where things do not overlap too much."""

    def __init__(self, world: World, random: np.random.Generator) -> None:
        self._most, self._random = world.most_overlap, random
        self._taken = np.empty((0, 4))

    def find(self, size: str) -> NDArray[np.float64]:
        """Return a box of a size that overlaps earlier ones as little as the world demands, where there is room."""
        sides = self._random.uniform(*SIDE_OF[size], (CANDIDATES, 2))
        corners = self._random.uniform(0, 1, (CANDIDATES, 2)) * (np.array(SIZE_WH) - sides)
        boxes = np.concatenate((corners, corners + sides), axis=1)
        overlap = numpy_box_iou(boxes, self._taken).max(1, initial=0)
        best = int(np.argmax(overlap <= self._most)) if (overlap <= self._most).any() else int(np.argmin(overlap))
        self._taken = np.concatenate((self._taken, boxes[best : best + 1]))
        found: NDArray[np.float64] = boxes[best]
        return found


def _broad_box(random: np.random.Generator) -> NDArray[np.float64]:
    sides = random.uniform((260, 120), (560, 260))
    corner = random.uniform(0, 1, 2) * (np.array(SIZE_WH) - sides)
    return np.concatenate((corner, corner + sides))
