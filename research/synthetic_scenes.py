"""Synthetic proposals of experiment B, as tallybox 0.2 drew them: things of several kinds among clutter."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallybox.boxes import numpy_box_iou
from tallybox.vqa import simulation
from tallybox.vqa.data.photos import PhotoFeatures
from tallybox.vqa.simulation import CLUTTER, COLOURS, JITTER, MAX_IOU, PROPOSALS, SIZE_WH

# Kinds of things that questions are about, by general name.
KINDS = {
    "animal": ("dog", "cat", "horse"),
    "vehicle": ("car", "bus", "bicycle"),
    "fruit": ("apple", "pear", "lemon"),
    "toy": ("ball", "kite", "doll"),
}
CLASS_OF = {kind: general for general, kinds in KINDS.items() for kind in kinds}
SIZES = ("small", "large")
SUPPORTS = ("grass", "road", "sand", "table", "rug", "bench")
DIGITS = tuple(str(digit) for digit in range(1, 10))  # that may be painted on a vehicle
VIEWS = ("part", "several")  # of a proposal that does not show exactly one whole thing
# Everything that the features of a proposal encode.
ENCODED = (*KINDS, *CLASS_OF, *COLOURS, *SIZES, *SUPPORTS, *DIGITS, *CLUTTER, *VIEWS, "background")
SIDE_OF = {"small": (44, 66), "large": (72, 104)}  # pixels
CANDIDATES = 24  # boxes that are tried for each thing


class World(simulation.World):
    """The package's world, with effects of its difficulty that are not part of it any more."""

    # The effects of difficulty; docs/reference/vqa-data.md has the same table.
    min_iou = property(lambda self: 0.8 - 0.4 * self.difficulty)  # of a duplicate with its object
    max_overlap = property(lambda self: 0.05 + 0.3 * self.difficulty)  # IoU of two different objects
    share_of_parts = property(lambda self: 0.2 * self.difficulty)  # of the proposals after an object's first
    share_of_groups = property(lambda self: 0.1 * self.difficulty)  # of the same proposals; these show several objects
    noise = property(lambda self: 1.2 * self.difficulty)  # length; a kind's prototype has length 1
    variation = property(lambda self: 0.8 * self.difficulty)  # length of the noise that an object's proposals share


def prototypes(world: World, names: Sequence[str] = ENCODED) -> dict[str, NDArray[np.float64]]:
    """Return a direction `[F]` of length 1 for everything that the features encode.

    More names at the end do not change the directions of those before.

    >>> directions = prototypes(World(features=8))
    >>> directions["dog"].shape, round(float((directions["dog"] ** 2).sum()), 6)
    ((8,), 1.0)
    """
    random = np.random.default_rng([world.seed, 0])
    drawn = random.normal(size=(len(names), world.features))
    return dict(zip(names, drawn / np.linalg.norm(drawn, axis=1, keepdims=True), strict=True))


@dataclass(frozen=True)
class Thing:
    """One object; clutter has no attributes."""

    kind: str
    box_xyxy: NDArray[np.float64]  # [4] pixels
    colour: str | None = None
    size: str | None = None
    digit: str | None = None
    support: str | None = None


@dataclass(frozen=True)
class SimulatedScene:
    """One photo: groups of things by kind, clutter, and what the groups stand on."""

    image_id: int
    groups: dict[str, list[Thing]]
    clutter: list[Thing]
    supports: dict[str, NDArray[np.float64]]  # by name, [4] pixels


class BoxPlacer:
    """Places boxes so that they do not overlap too much."""

    def __init__(self, world: World, random: np.random.Generator) -> None:
        self._max_overlap, self._random = world.max_overlap, random
        self._taken = np.empty((0, 4))

    def find(self, size: str) -> NDArray[np.float64]:
        """Return a box of a size with at most the allowed overlap with earlier ones, or the least overlap found."""
        sides = self._random.uniform(*SIDE_OF[size], (CANDIDATES, 2))
        corners = self._random.uniform(0, 1, (CANDIDATES, 2)) * (np.array(SIZE_WH) - sides)
        boxes = np.concatenate((corners, corners + sides), axis=1)
        overlap = numpy_box_iou(boxes, self._taken).max(1, initial=0)
        allowed = overlap <= self._max_overlap
        box: NDArray[np.float64] = boxes[allowed.argmax() if allowed.any() else overlap.argmin()]
        self._taken = np.vstack((self._taken, box))
        return box


MIN_IRRELEVANT = 6
MAX_PROPOSALS = 100  # as in bottom-up attention
ON_A_KIND = (5, 8)  # range of the number of proposals on the things of one kind
JITTERED = 32
# Weights of the directions in a feature; a kind's prototype has weight 1.
WEIGHTS = {"class": 0.5, "colour": 0.8, "size": 0.5, "digit": 0.9, "support": 0.6, "view": 0.7}

Floats = NDArray[np.float64]
Proposal = tuple[Floats, Floats]  # box [4], features [F]


class SimulatedDetector:
    """Turns scenes into proposals; one detector serves a whole data set."""

    def __init__(self, world: World, directions: dict[str, Floats]) -> None:
        self._world, self._directions = world, directions

    def detect(self, scene: SimulatedScene, random: np.random.Generator) -> PhotoFeatures:
        """Return the proposals of a scene."""
        number = int(random.integers(*PROPOSALS))
        proposals = []
        for things in scene.groups.values():
            proposals += self._on_group(things, int(random.integers(*ON_A_KIND)), random)
        proposals += self._irrelevant(scene, max(number - len(proposals), MIN_IRRELEVANT), random)
        order = random.permutation(len(proposals))[:MAX_PROPOSALS]
        noise = self._noise(self._world.noise, random, len(order))
        boxes, features = (np.stack(arrays)[order] for arrays in zip(*proposals, strict=True))
        inside = np.clip(boxes, 0, (*SIZE_WH, *SIZE_WH)).astype(np.float32)
        return PhotoFeatures(str(scene.image_id), SIZE_WH, inside, (features + noise).astype(np.float32))

    def _on_group(self, things: list[Thing], number: int, random: np.random.Generator) -> list[Proposal]:
        """Return a proposal for each thing, and further ones for random things, some of parts or of several things."""
        features = [self._feature(thing) + self._noise(self._world.variation, random)[0] for thing in things]
        chosen = [*range(len(things)), *random.integers(len(things), size=max(0, number - len(things))).tolist()]
        jittered = self._jittered(np.stack([things[index].box_xyxy for index in chosen]), random)
        proposals = []
        for rank, index in enumerate(chosen):
            box, feature = jittered[rank], features[index]
            kind_of_view = random.random()
            if rank >= len(things) and kind_of_view < self._world.share_of_parts:
                box = _part_of(things[index].box_xyxy, random)
                feature = feature + WEIGHTS["view"] * self._directions["part"]
            elif rank >= len(things) and kind_of_view > 1 - self._world.share_of_groups and len(things) > 1:
                other = _nearest(things, index)
                pair = np.stack((things[index].box_xyxy, things[other].box_xyxy))
                box = np.concatenate((pair[:, :2].min(0), pair[:, 2:].max(0)))
                feature = (features[index] + features[other]) / 2 + WEIGHTS["view"] * self._directions["several"]
            proposals.append((box, feature))
        return proposals

    def _irrelevant(self, scene: SimulatedScene, number: int, random: np.random.Generator) -> list[Proposal]:
        """Return proposals for supports and clutter."""
        proposals = [(box, self._directions[name]) for name, box in scene.supports.items()]
        chosen = list(range(len(scene.clutter)))[: number - len(proposals)]
        extra = max(0, number - len(proposals) - len(chosen))
        chosen += random.integers(len(scene.clutter), size=extra).tolist()
        jittered = self._jittered(np.stack([scene.clutter[index].box_xyxy for index in chosen]), random)
        for box, index in zip(jittered, chosen, strict=True):
            proposals.append((box, self._directions[scene.clutter[index].kind] + self._directions["background"] / 2))
        return proposals

    def _feature(self, thing: Thing) -> Floats:
        feature = self._directions[thing.kind].copy()
        for what in ("class", "colour", "size", "digit", "support"):
            name = CLASS_OF.get(thing.kind) if what == "class" else getattr(thing, what)
            if name is not None:
                feature += WEIGHTS[what] * self._directions[name]
        return feature

    def _jittered(self, boxes: Floats, random: np.random.Generator) -> Floats:
        """Return a jittered copy of each box, `[N, 4]`, whose IoU with it is in the allowed range."""
        sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
        candidates = boxes + random.normal(0, JITTER, (JITTERED, *boxes.shape)) * sides  # [candidates, N, 4]
        overlap = numpy_box_iou(candidates.swapaxes(0, 1), boxes[:, None])[..., 0].T  # [candidates, N]
        allowed = (overlap >= self._world.min_iou) & (overlap <= MAX_IOU)
        first = np.where(allowed.any(0), allowed.argmax(0), overlap.argmax(0))
        chosen: Floats = candidates[first, np.arange(len(boxes))]
        return chosen

    def _noise(self, length: float, random: np.random.Generator, number: int = 1) -> Floats:
        return random.normal(0, length / np.sqrt(self._world.features), (number, self._world.features))


def _part_of(box: Floats, random: np.random.Generator) -> Floats:
    """Return about a third of a box, at one end."""
    part = box.copy()
    far, axis = divmod(int(random.integers(4)), 2)
    length = random.uniform(0.25, 0.45) * (box[axis + 2] - box[axis])
    if far:
        part[axis] = box[axis + 2] - length
    else:
        part[axis + 2] = box[axis] + length
    return part


def _nearest(things: list[Thing], index: int) -> int:
    centres = np.stack([(thing.box_xyxy[:2] + thing.box_xyxy[2:]) / 2 for thing in things])
    distance = np.linalg.norm(centres - centres[index], axis=1)
    distance[index] = np.inf
    return int(np.argmin(distance))
