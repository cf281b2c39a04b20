"""What there is in the made-up world, and how hard it is to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError

SIZE_WH = (640, 480)
# Kinds of things that are asked about, by what they are.
KINDS = {
    "animal": ("dog", "cat", "horse"),
    "vehicle": ("car", "bus", "bicycle"),
    "fruit": ("apple", "pear", "lemon"),
    "toy": ("ball", "kite", "doll"),
}
CLASS_OF = {kind: general for general, kinds in KINDS.items() for kind in kinds}
PLURALS = {kind: f"{kind}s" for kind in CLASS_OF} | {"bus": "buses"}
COLOURS = ("red", "blue", "green", "yellow", "black", "white")
SIZES = ("small", "large")
SUPPORTS = ("grass", "road", "sand", "table", "rug", "bench")
DIGITS = tuple(str(digit) for digit in range(1, 10))  # what may be written on a vehicle
CLUTTER = ("tree", "rock", "bush", "lamp", "window", "cloud")  # nobody asks about it
VIEWS = ("part", "several")  # what a proposal shows where it does not show one whole thing


@dataclass(frozen=True)
class World:
    """How much of the made-up world is written, and how hard it is.

    Difficulty 0 to 1 scales, from none to the most: noise of features, how far duplicates stray from their object, how
    often a proposal shows a part or several objects, how far different objects overlap, and how much people disagree.
    """

    train_photos: int = 3000
    val_photos: int = 1000
    test_photos: int = 200
    questions_per_photo: int = 3  # each comes with its counterpart about another photo
    features: int = 64
    difficulty: float = 0.4
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.difficulty <= 1:
            raise InputError(f"difficulty must be between 0 and 1, but got {self.difficulty}")
        for name, least in (("train_photos", 2), ("val_photos", 2), ("test_photos", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, but got {getattr(self, name)}")
        for name in ("questions_per_photo", "features"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, but got {getattr(self, name)}")

    @property
    def least_iou(self) -> float:
        """How far a duplicate may stray from its object."""
        return 0.8 - 0.4 * self.difficulty

    @property
    def most_overlap(self) -> float:
        """IoU of two different objects at most."""
        return 0.05 + 0.3 * self.difficulty

    @property
    def share_of_parts(self) -> float:
        """Of the proposals beyond an object's first, how many show a part of it."""
        return 0.2 * self.difficulty

    @property
    def share_of_groups(self) -> float:
        """Likewise, how many show several objects of its kind."""
        return 0.1 * self.difficulty

    @property
    def noise(self) -> float:
        """Length of a proposal's noise; a kind's own prototype has length 1."""
        return 1.2 * self.difficulty

    @property
    def variation(self) -> float:
        """Length of what an object has of its own, shared by its proposals."""
        return 0.8 * self.difficulty

    @property
    def disagreement(self) -> float:
        """How often a person gives another answer."""
        return 0.2 * self.difficulty


def prototypes(world: World, others: Sequence[str] = ()) -> dict[str, NDArray[np.float64]]:
    """Return a direction `[F]` of length 1 for everything that a detector's features tell apart, and for others.

    >>> directions = prototypes(World(features=8))
    >>> directions["dog"].shape, round(float((directions["dog"] ** 2).sum()), 6)
    ((8,), 1.0)
    """
    random = np.random.default_rng([world.seed, 0])
    names = (*KINDS, *CLASS_OF, *COLOURS, *SIZES, *SUPPORTS, *DIGITS, *CLUTTER, *VIEWS, "background", *others)
    drawn = random.normal(size=(len(names), world.features))
    return dict(zip(names, drawn / np.linalg.norm(drawn, axis=1, keepdims=True), strict=True))
