"""`tallybox vqa simulate --inventory`: features for the photos of real questions, from their true object counts."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tallybox.errors import InputError
from tallybox.files import open_text
from tallybox.vqa.data.features import PhotoFeatures
from tallybox.vqa.data.photo_ids import photo_id
from tallybox.vqa.data.questions import read_questions
from tallybox.vqa.simulation.detector import SimulatedDetector
from tallybox.vqa.simulation.files import write_photos
from tallybox.vqa.simulation.world import CLUTTER, SIZES, BoxPlacer, SimulatedScene, Thing, World, prototypes

COLUMNS = ("image_id", "category_id", "count")
CLUTTER_THINGS = (3, 8)  # range of np.random.Generator.integers


def simulate_from_inventory(
    questions: Sequence[Path],
    inventory: Path,
    out: Path,
    world: World | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write ``features.tsv`` for the photos of questions and return the number of photos.

    Each object has proposals as in the simulated world; each category has a prototype. Colours and positions of the
    real objects are unknown. A photo that is not in the inventory shows clutter only.
    """
    world = world or World()
    counts = read_inventory(inventory)
    names = {photo_id(one.image_id) for path in questions for one in read_questions(path)}
    if named := sorted(name for name in names if not name.isdigit()):
        raise InputError(
            f"photos of the questions must have numbers as ids, as the inventory has, but got {named[0]!r}"
        )
    image_ids = sorted(map(int, names))
    if not counts.keys() & set(image_ids):
        raise InputError(f"{inventory} must be about the photos of the questions, but names none of {len(image_ids)}")
    write_photos(out, photos_of_inventory(image_ids, counts, world), len(image_ids), on_progress)
    return len(image_ids)


def read_inventory(path: Path) -> dict[int, dict[int, int]]:
    """Read counts by photo and category: a CSV with image_id, category_id and count, gzipped or not."""
    found: dict[int, dict[int, int]] = {}
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
            found.setdefault(image_id, {})[category_id] = count
    return found


def photos_of_inventory(
    image_ids: Sequence[int], counts: Mapping[int, Mapping[int, int]], world: World
) -> Iterator[PhotoFeatures]:
    """Yield simulated proposals of photos; those of a photo do not depend on the other photos."""
    kinds = sorted({category_id for some in counts.values() for category_id in some})
    detector = SimulatedDetector(world, prototypes(world, [_kind(category_id) for category_id in kinds]))
    for image_id in image_ids:
        random = np.random.default_rng([world.seed, image_id])
        yield detector.detect(_scene(image_id, counts.get(image_id, {}), world, random), random)


def _scene(image_id: int, counts: Mapping[int, int], world: World, random: np.random.Generator) -> SimulatedScene:
    placer = BoxPlacer(world, random)

    def thing(kind: str) -> Thing:
        return Thing(kind, placer.find(str(random.choice(SIZES))))

    groups = {_kind(one): [thing(_kind(one)) for _ in range(count)] for one, count in counts.items() if count}
    clutter = [thing(str(random.choice(CLUTTER))) for _ in range(int(random.integers(*CLUTTER_THINGS)))]
    return SimulatedScene(image_id, groups, clutter, {})


def _kind(category_id: int) -> str:
    return f"category {category_id}"
