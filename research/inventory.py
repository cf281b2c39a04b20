"""An inventory of photos, how many objects of each of COCO's categories they show: proposals and questions from it."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from instance_questions import FAMILIES, category_facts, general_name
from numpy.typing import NDArray
from synthetic_scenes import (
    CLUTTER,
    ENCODED,
    SIZES,
    BoxPlacer,
    SimulatedDetector,
    SimulatedScene,
    Thing,
    World,
    prototypes,
)

from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.detections.labels import TrueCounts
from tallybox.errors import InputError
from tallybox.files import open_text
from tallybox.vqa.data.photos import PhotoFeatures
from tallybox.vqa.simulation import Query, write_split

COLUMNS = ("image_id", "category_id", "count")
CLUTTER_THINGS = (3, 8)  # a range of np.random.Generator.integers

Inventory = dict[int, dict[int, int]]  # counts by photo and category


def read_inventory(path: Path) -> Inventory:
    """Read a CSV with image_id, category_id and count, gzipped or not."""
    inventory: Inventory = {}
    with open_text(path) as file:
        rows = csv.DictReader(file)
        if missing := [column for column in COLUMNS if column not in (rows.fieldnames or ())]:
            raise InputError(f"{path} must have the columns {', '.join(COLUMNS)}, but {missing[0]} is missing")
        for number, row in enumerate(rows):
            try:
                image_id, category_id, count = (int(row[column]) for column in COLUMNS)
            except (TypeError, ValueError):
                raise InputError(
                    f"{path}, record {number}: must be whole numbers, but got {list(row.values())}"
                ) from None
            if count < 0:
                raise InputError(f"{path}, record {number}: count must be at least 0, but got {count}")
            inventory.setdefault(image_id, {})[category_id] = count
    return inventory


def photos_of_inventory(image_ids: Sequence[int], inventory: Inventory, world: World) -> Iterator[PhotoFeatures]:
    """Yield simulated proposals of photos; those of a photo do not depend on the other photos.

    Each object has proposals as in the simulated world, and each category has a prototype. Colours and positions of the
    real objects are unknown. A photo that is not in the inventory shows clutter only.
    """
    category_ids = sorted({category_id for counts in inventory.values() for category_id in counts})
    detector = SimulatedDetector(world, category_prototypes(world, category_ids))
    for image_id in image_ids:
        random = np.random.default_rng([world.seed, image_id])
        yield detector.detect(_scene(image_id, inventory.get(image_id, {}), world, random), random)


def category_prototypes(world: World, category_ids: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """Return the directions ``[F]`` of the simulated world, and one for each category."""
    return prototypes(world, [*ENCODED, *map(_kind, category_ids)])


def _scene(image_id: int, counts: Mapping[int, int], world: World, random: np.random.Generator) -> SimulatedScene:
    placer = BoxPlacer(world, random)

    def thing(kind: str) -> Thing:
        return Thing(kind, placer.find(str(random.choice(SIZES))))

    groups = {
        _kind(category_id): [thing(_kind(category_id)) for _ in range(count)]
        for category_id, count in counts.items()
        if count
    }
    clutter = [thing(str(random.choice(CLUTTER))) for _ in range(int(random.integers(*CLUTTER_THINGS)))]
    return SimulatedScene(image_id, groups, clutter, {})


def _kind(category_id: int) -> str:
    return f"category {category_id}"


def ask_about_inventory(
    image_ids: Sequence[int], inventory: Inventory, out: Path, *, questions_per_photo: int = 1, seed: int = 0
) -> int:
    """Write training questions about photos and return their number."""
    labels = TrueCounts({image_id: inventory.get(image_id, {}) for image_id in image_ids}, categories=COCO_CATEGORIES)
    generals = {category_id: general_name(name) for category_id, name in COCO_CATEGORIES.items()}
    # Without synonyms: the human questions that these join have their own.
    facts = {
        image_id: {
            Query(query.family, query.words): answer
            for query, answer in category_facts(labels, image_id, generals).items()
        }
        for image_id in image_ids
    }
    random = np.random.default_rng(seed)
    return write_split(out, "train", facts, questions_per_photo, random, FAMILIES)
