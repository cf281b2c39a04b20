"""Features of the photos of real questions, made up from how many objects of each category they truly show."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.labels import TrueCounts
from tallybox.errors import InputError
from tallybox.files import open_text
from tallybox.vqa.bottom_up import Photo, write_tsv
from tallybox.vqa.questions import read_questions
from tallybox.vqa.simulation.annotated import general_name, write_questions
from tallybox.vqa.simulation.proposals import Detector
from tallybox.vqa.simulation.scenes import Places, Scene, Thing
from tallybox.vqa.simulation.world import CLUTTER, SIZES, World, prototypes

FEATURES = "features.tsv"
COLUMNS = ("image_id", "category_id", "count")
CLUTTER_THINGS = (3, 8)  # the fewest, and one more than the most

Inventory = Mapping[int, Mapping[int, int]]  # by photo and category: how many


def simulate_from_inventory(
    questions: Sequence[Path],
    inventory: Path,
    out: Path,
    world: World | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write ``features.tsv`` for the photos of questions and return how many there are.

    Each object has proposals as in the made-up world; a category is a prototype. Nothing else about a photo is known:
    neither colours nor where things are. A photo that the inventory does not name shows clutter only.
    """
    world = world or World()
    counts = read_inventory(inventory)
    image_ids = sorted({one.image_id for path in questions for one in read_questions(path)})
    if not counts.keys() & set(image_ids):
        raise InputError(f"{inventory} must be about the photos of the questions, but names none of {len(image_ids)}")

    def photos() -> Iterator[Photo]:
        for number, photo in enumerate(photos_of_inventory(image_ids, counts, world), start=1):
            yield photo
            on_progress(number, len(image_ids))

    write_tsv(out / FEATURES, photos())
    return len(image_ids)


def ask_about_inventory(
    image_ids: Sequence[int], inventory: Path, out: Path, *, questions_per_photo: int = 1, seed: int = 0
) -> int:
    """Write training questions about photos from how many objects of COCO's categories they show; return how many."""
    counts = read_inventory(inventory)
    labels = TrueCounts({image_id: counts.get(image_id, {}) for image_id in image_ids}, categories=COCO_CATEGORIES)
    generals = {category_id: general_name(name) for category_id, name in COCO_CATEGORIES.items()}
    # Called by their names alone: the human questions that these join have other words of their own.
    return write_questions(
        labels, generals, out, "train", questions_per_photo, seed, source=inventory, other_words=False
    )


def read_inventory(path: Path) -> dict[int, dict[int, int]]:
    """Read a CSV with the columns image_id, category_id and count, gzipped or not."""
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


def photos_of_inventory(image_ids: Sequence[int], counts: Inventory, world: World) -> Iterator[Photo]:
    """Yield made-up proposals of photos; each looks the same whatever other photos are asked for."""
    kinds = sorted({category_id for some in counts.values() for category_id in some})
    detector = Detector(world, prototypes(world, [_kind(category_id) for category_id in kinds]))
    for image_id in image_ids:
        random = np.random.default_rng([world.seed, image_id])
        yield detector.look(_scene(image_id, counts.get(image_id, {}), world, random), random)


def _scene(image_id: int, counts: Mapping[int, int], world: World, random: np.random.Generator) -> Scene:
    places = Places(world, random)

    def thing(kind: str) -> Thing:
        return Thing(kind, places.find(str(random.choice(SIZES))))

    groups = {_kind(one): [thing(_kind(one)) for _ in range(count)] for one, count in counts.items() if count}
    clutter = [thing(str(random.choice(CLUTTER))) for _ in range(int(random.integers(*CLUTTER_THINGS)))]
    return Scene(image_id, groups, clutter, {})


def _kind(category_id: int) -> str:
    return f"category {category_id}"
