"""Hypothesis strategies: boxes, activation weights, and scenes whose true count is known.

Coordinates lie on a coarse binary grid, so that shifts by whole numbers and scales by powers of two
are exact in float32 and a property does not have to forgive rounding.
"""

from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from tallybox import Counter, PresenceCounter, PresenceWeights
from tests.support.problems import Layer, Problem, random_generator, random_presence_weights

GRID = 32  # grid lines in one unit


def unit_floats() -> st.SearchStrategy[float]:
    return st.floats(0, 1, width=32)


@st.composite
def single_boxes(draw: st.DrawFn, minimal_side: int = 0) -> list[float]:
    """One box within [0, 3]², possibly without area."""
    x1, y1 = draw(st.integers(0, 2 * GRID)), draw(st.integers(0, 2 * GRID))
    width, height = draw(st.integers(minimal_side, GRID)), draw(st.integers(minimal_side, GRID))
    return [x1 / GRID, y1 / GRID, (x1 + width) / GRID, (y1 + height) / GRID]


@st.composite
def box_sets(draw: st.DrawFn, minimum: int = 1, maximum: int = 8, minimal_side: int = 0) -> Tensor:
    """Boxes ``[N, 4]`` that may overlap, coincide or have no area."""
    boxes = draw(st.lists(single_boxes(minimal_side), min_size=minimum, max_size=maximum))
    return torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4)


@st.composite
def activation_weights(draw: st.DrawFn, *shape: int) -> Tensor:
    """Weights ``[*shape]`` as found untrained, trained, mostly zero, all zero, huge or tiny."""
    generator = random_generator(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["untrained", "trained", "sparse", "zero", "huge", "tiny"]))
    normal = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return {
        "untrained": torch.ones_like(normal),
        "trained": normal,
        "sparse": normal * (torch.rand(*shape, generator=generator) < 0.2),
        "zero": torch.zeros_like(normal),
        "huge": normal.clamp(-3, 3) * 1e38,
        "tiny": normal * 1e-30,
    }[kind]


def smooth_weights(*shape: int) -> st.SearchStrategy[Tensor]:
    """Weights ``[*shape]`` without extreme steepness, for comparisons up to rounding."""

    def build(seed: int) -> Tensor:
        return 0.5 + torch.rand(*shape, generator=random_generator(seed), dtype=torch.float64)

    return st.integers(0, 2**32 - 1).map(build)


def presence_weights(*leading: int) -> st.SearchStrategy[PresenceWeights]:
    """Weights of presence counting ``[*leading, ...]`` without extreme steepness."""
    return st.integers(0, 2**32 - 1).map(lambda seed: random_presence_weights(*leading, seed=seed))


def weights_of(layer: type[Layer]) -> st.SearchStrategy[Tensor | PresenceWeights]:
    """Weights of one head."""
    return presence_weights(1) if layer is PresenceCounter else smooth_weights(1, 8, 16)


@st.composite
def problems(
    draw: st.DrawFn,
    minimum: int = 1,
    maximum: int = 8,
    max_objects: int = 8,
    distinct_attention: bool = False,
    layer: type[Layer] = Counter,
) -> Problem:
    """Any attention over any boxes; if distinct, by more than rounding."""
    boxes = draw(box_sets(minimum, maximum))
    number = len(boxes)
    values = st.integers(0, 257).map(lambda part: part / 257) if distinct_attention else unit_floats()
    attention = draw(st.lists(values, min_size=number, max_size=number, unique=distinct_attention))
    return Problem(
        torch.tensor(attention, dtype=torch.float64), boxes, draw(weights_of(layer)), max_objects=max_objects
    )


class Scene(NamedTuple):
    """Objects far from each other, each seen by one or more identical full-weight proposals."""

    objects: int
    attention: Tensor  # [N], 0 or 1
    boxes: Tensor  # [N, 4]
    owners: Tensor  # [N], which object a proposal shows


@st.composite
def scenes(draw: st.DrawFn, most_objects: int = 6, most_copies: int = 4, minimal_side: int = 0) -> Scene:
    """Disjoint objects and exact copies of them, all at weight 1, shuffled."""
    places = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=most_objects, unique=True))
    proposals = []
    for owner, (column, row) in enumerate(places):
        width, height = draw(st.integers(minimal_side, GRID)), draw(st.integers(minimal_side, GRID))
        box = [2.0 * column, 2.0 * row, 2.0 * column + width / GRID, 2.0 * row + height / GRID]
        proposals += [(owner, box)] * draw(st.integers(1, most_copies))
    proposals = draw(st.permutations(proposals))
    return Scene(
        len(places),
        torch.ones(len(proposals), dtype=torch.float64),
        torch.tensor([box for _, box in proposals], dtype=torch.float64).reshape(-1, 4),
        torch.tensor([owner for owner, _ in proposals], dtype=torch.long),
    )
