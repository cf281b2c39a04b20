"""What a detector would say about a scene: several proposals for each thing, parts, groups, irrelevant ones.

How many proposals a photo has, and how many fall on a kind that is there, is drawn without regard to how many things
of that kind there are: one dog may have seven proposals and five dogs may share them. Proposals come in random order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallybox.boxes import numpy_box_iou
from tallybox.vqa.bottom_up import Photo
from tallybox.vqa.simulation.scenes import Scene, Thing
from tallybox.vqa.simulation.world import CLASS_OF, SIZE_WH, World

PROPOSALS = (24, 29)  # of a photo: the fewest, and one more than the most, unless there are more things
LEAST_IRRELEVANT = 6
MOST_PROPOSALS = 100  # as bottom-up attention gives
ON_A_KIND = (5, 8)  # of those, on the things of one kind
MOST_IOU = 0.97  # no detector gives the same box twice
CANDIDATES = 32
STRAY = 0.13  # of a side: how far a duplicate is moved and stretched before it is looked at
# How much of a feature tells what; a kind's own prototype has weight 1.
WEIGHTS = {"class": 0.5, "colour": 0.8, "size": 0.5, "digit": 0.9, "support": 0.6, "view": 0.7}

Features = NDArray[np.float64]


class Detector:
    """Turns scenes into proposals; one for a whole data set, as all its photos are seen by one detector."""

    def __init__(self, world: World, directions: dict[str, Features]) -> None:
        self._world, self._directions = world, directions

    def look(self, scene: Scene, random: np.random.Generator) -> Photo:
        """Return the proposals of a scene."""
        number = int(random.integers(*PROPOSALS))
        boxes: list[NDArray[np.float64]] = []
        features: list[Features] = []
        for things in scene.groups.values():
            for box, feature in self._on_group(things, int(random.integers(*ON_A_KIND)), random):
                boxes.append(box)
                features.append(feature)
        for box, feature in self._irrelevant(scene, max(number - len(boxes), LEAST_IRRELEVANT), random):
            boxes.append(box)
            features.append(feature)
        order = random.permutation(len(boxes))[:MOST_PROPOSALS]
        noise = self._noise(self._world.noise, random, len(order))
        return Photo(
            scene.image_id,
            SIZE_WH,
            np.clip(np.stack(boxes)[order], 0, (*SIZE_WH, *SIZE_WH)).astype(np.float32),
            (np.stack(features)[order] + noise).astype(np.float32),
        )

    def _on_group(
        self, things: list[Thing], number: int, random: np.random.Generator
    ) -> list[tuple[NDArray[np.float64], Features]]:
        """Return a proposal for each thing, and the rest for things at random, some of parts or of several things."""
        own = [self._feature(thing) + self._noise(self._world.variation, random)[0] for thing in things]
        chosen = [*range(len(things)), *random.integers(len(things), size=max(0, number - len(things))).tolist()]
        strayed = self._strayed(np.stack([things[place].box_xyxy for place in chosen]), random)
        found = []
        for rank, place in enumerate(chosen):
            box, feature = strayed[rank], own[place]
            kind_of_view = random.random()
            if rank >= len(things) and kind_of_view < self._world.share_of_parts:
                box = _part_of(things[place].box_xyxy, random)
                feature = feature + WEIGHTS["view"] * self._directions["part"]
            elif rank >= len(things) and kind_of_view > 1 - self._world.share_of_groups and len(things) > 1:
                other = _nearest(things, place)
                pair = np.stack((things[place].box_xyxy, things[other].box_xyxy))
                box = np.concatenate((pair[:, :2].min(0), pair[:, 2:].max(0)))
                feature = (own[place] + own[other]) / 2 + WEIGHTS["view"] * self._directions["several"]
            found.append((box, feature))
        return found

    def _irrelevant(
        self, scene: Scene, number: int, random: np.random.Generator
    ) -> list[tuple[NDArray[np.float64], Features]]:
        """Return proposals for what the groups stand on, clutter, and nothing in particular."""
        found = []
        for name, box in scene.supports.items():
            found.append((box, self._directions[name]))
        chosen = list(range(len(scene.clutter)))[: number - len(found)]
        extra = max(0, number - len(found) - len(chosen))
        chosen += random.integers(len(scene.clutter), size=extra).tolist()
        strayed = self._strayed(np.stack([scene.clutter[place].box_xyxy for place in chosen]), random)
        for box, place in zip(strayed, chosen, strict=True):
            found.append((box, self._directions[scene.clutter[place].kind] + self._directions["background"] / 2))
        return found

    def _feature(self, thing: Thing) -> Features:
        told = {
            "class": CLASS_OF.get(thing.kind),
            "colour": thing.colour,
            "size": thing.size,
            "digit": thing.digit,
            "support": thing.support,
        }
        feature = self._directions[thing.kind].copy()
        for what, name in told.items():
            if name is not None:
                feature += WEIGHTS[what] * self._directions[name]
        return feature

    def _strayed(self, boxes: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
        """Return a jittered box for each, `[N, 4]`, whose IoU with it is as the world allows."""
        sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
        candidates = boxes + random.normal(0, STRAY, (CANDIDATES, *boxes.shape)) * sides  # [candidates, N, 4]
        overlap = numpy_box_iou(candidates.swapaxes(0, 1), boxes[:, None])[..., 0].T  # [candidates, N]
        allowed = (overlap >= self._world.least_iou) & (overlap <= MOST_IOU)
        first = np.where(allowed.any(0), allowed.argmax(0), overlap.argmax(0))
        chosen: NDArray[np.float64] = candidates[first, np.arange(len(boxes))]
        return chosen

    def _noise(self, length: float, random: np.random.Generator, number: int = 1) -> Features:
        return random.normal(0, length / np.sqrt(self._world.features), (number, self._world.features))


def _part_of(box: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """Return about a third of a box: one end of it."""
    part = box.copy()
    side = int(random.integers(4))
    kept = random.uniform(0.25, 0.45)
    axis = side % 2
    length = box[axis + 2] - box[axis]
    if side < 2:
        part[axis + 2] = box[axis] + kept * length
    else:
        part[axis] = box[axis + 2] - kept * length
    return part


def _nearest(things: list[Thing], place: int) -> int:
    centres = np.stack([(thing.box_xyxy[:2] + thing.box_xyxy[2:]) / 2 for thing in things])
    distance = np.linalg.norm(centres - centres[place], axis=1)
    distance[place] = np.inf
    return int(np.argmin(distance))
