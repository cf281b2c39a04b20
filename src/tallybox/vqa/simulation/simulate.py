"""`tallybox vqa simulate`: a simulated data set in the official formats, or features for the photos of questions."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tallybox.errors import InputError
from tallybox.files import open_text
from tallybox.vqa.data.features import PhotoFeatures, write_tsv
from tallybox.vqa.data.photo_ids import photo_id
from tallybox.vqa.data.questions import read_questions
from tallybox.vqa.simulation.detector import SimulatedDetector
from tallybox.vqa.simulation.questions import Query, write_split
from tallybox.vqa.simulation.world import (
    CLASS_OF,
    CLUTTER,
    COLOURS,
    KINDS,
    PLURALS,
    SIZES,
    SUPPORTS,
    BoxPlacer,
    SimulatedScene,
    Thing,
    World,
    draw_scene,
    prototypes,
)

FEATURES = "features.tsv"
COLUMNS = ("image_id", "category_id", "count")  # of an inventory
INVENTORY_CLUTTER = (3, 8)  # things, as a range of np.random.Generator.integers
DESCRIPTION = "made up by tallybox vqa simulate"
WORDINGS = {
    "count": (
        "How many {plural} are there?",
        "How many {plural} are in the picture?",
        "How many {plural} can you see?",
        "How many {plural} are shown?",
    ),
    "count_attribute": ("How many {attribute} {plural} are there?", "How many of the {plural} are {attribute}?"),
    "digit": ("What number is on the {kind}?", "Which number does the {kind} have?"),
    "exists": (
        "Is there {article} {kind}?",
        "Is there {article} {kind} in the picture?",
        "Can you see {article} {kind}?",
    ),
    "exists_attribute": ("Is there a {attribute} {kind}?", "Can you see a {attribute} {kind}?"),
    "is_colour": ("Is the {kind} {colour}?", "Is the color of the {kind} {colour}?"),
    "is_on": ("Is the {kind} on the {support}?", "Is the {support} under the {kind}?"),
    "colour": ("What color is the {kind}?", "What is the color of the {kind}?"),
    "support": ("What is the {kind} on?", "Where is the {kind}?"),
    "which": ("What {general} is this?", "What kind of {general} is in the picture?"),
}

OnProgress = Callable[[int, int], None]  # photos that are done, photos in all


def simulate(
    out: Path, world: World | None = None, on_progress: OnProgress = lambda done, total: None
) -> dict[str, int]:
    """Write a simulated data set and return the number of questions of each split; the same world, the same files."""
    world = world or World()
    out.mkdir(parents=True, exist_ok=True)
    sizes = {"train": world.train_photos, "val": world.val_photos, "test": world.test_photos}
    scenes: list[SimulatedScene] = []
    questions: dict[str, int] = {}
    for number, (split, size) in enumerate(sizes.items(), start=1):
        random = np.random.default_rng([world.seed, number])
        first_id = len(scenes) + 1
        drawn = [draw_scene(image_id, world, random) for image_id in range(first_id, first_id + size)]
        scenes += drawn
        facts = {scene.image_id: scene_facts(scene) for scene in drawn}
        per_photo, disagreement = world.questions_per_photo, world.disagreement
        questions[split] = write_split(
            out, split, facts, WORDINGS, per_photo, random, disagreement=disagreement, description=DESCRIPTION
        )
    detector, random = SimulatedDetector(world, prototypes(world)), np.random.default_rng([world.seed, 4])
    _write_photos(out, (detector.detect(scene, random) for scene in scenes), len(scenes), on_progress)
    return {split: number for split, number in questions.items() if number}


def scene_facts(scene: SimulatedScene) -> dict[Query, str]:
    """Return the possible questions about a scene and their answers."""
    facts: dict[Query, str] = {}

    def add(family: str, answer: object, **words: str) -> None:
        text = ("yes" if answer else "no") if isinstance(answer, bool) else str(answer)
        facts[Query(family, tuple(words.items()))] = text

    for kind in CLASS_OF:
        article = "an" if kind[0] in "aeiou" else "a"
        add("count", scene.count(kind), plural=PLURALS[kind])
        add("exists", kind in scene.groups, kind=kind, article=article)
    for kind, things in scene.groups.items():
        for colour in COLOURS:
            add("count_attribute", scene.count(kind, colour=colour), plural=PLURALS[kind], attribute=colour)
            add("exists_attribute", scene.count(kind, colour=colour) > 0, kind=kind, attribute=colour)
        for size in SIZES:
            add("count_attribute", scene.count(kind, size=size), plural=PLURALS[kind], attribute=size)
        first = things[0]
        if first.digit is not None:
            add("digit", first.digit, kind=kind)
        if first.support is not None:
            add("support", first.support, kind=kind)
            for support in SUPPORTS:
                add("is_on", support == first.support, kind=kind, support=support)
        if first.colour is not None and all(thing.colour == first.colour for thing in things):
            add("colour", first.colour, kind=kind)
            for colour in COLOURS:
                add("is_colour", colour == first.colour, kind=kind, colour=colour)
    for general, kinds in KINDS.items():
        present = [kind for kind in kinds if kind in scene.groups]
        if len(present) == 1:
            add("which", present[0], general=general)
    return facts


def simulate_from_inventory(
    questions: Sequence[Path],
    inventory: Path,
    out: Path,
    world: World | None = None,
    on_progress: OnProgress = lambda done, total: None,
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
    _write_photos(out, photos_of_inventory(image_ids, counts, world), len(image_ids), on_progress)
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
    clutter = [thing(str(random.choice(CLUTTER))) for _ in range(int(random.integers(*INVENTORY_CLUTTER)))]
    return SimulatedScene(image_id, groups, clutter, {})


def _kind(category_id: int) -> str:
    return f"category {category_id}"


def _write_photos(folder: Path, photos: Iterable[PhotoFeatures], number: int, on_progress: OnProgress) -> None:
    """Write the features of so many photos."""

    def reported() -> Iterator[PhotoFeatures]:
        for done, photo in enumerate(photos, start=1):
            yield photo
            on_progress(done, number)

    write_tsv(folder / FEATURES, reported())
