"""`tallybox vqa simulate`: a simulated data set in the official formats."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tallybox.vqa.data.features import PhotoFeatures, write_tsv
from tallybox.vqa.simulation.detector import SimulatedDetector
from tallybox.vqa.simulation.questions import Query, write_split
from tallybox.vqa.simulation.world import (
    CLASS_OF,
    COLOURS,
    KINDS,
    PLURALS,
    SIZES,
    SUPPORTS,
    SimulatedScene,
    World,
    draw_scene,
    prototypes,
)

FEATURES = "features.tsv"
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

    def photos() -> Iterator[PhotoFeatures]:
        for done, scene in enumerate(scenes, start=1):
            yield detector.detect(scene, random)
            on_progress(done, len(scenes))

    write_tsv(out / FEATURES, photos())
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
