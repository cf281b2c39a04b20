"""The whole made-up data set: scenes, features, questions, answers and pairs, in the official formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tallybox.vqa.bottom_up import Photo, write_tsv
from tallybox.vqa.simulation.asking import ask
from tallybox.vqa.simulation.facts import WORDINGS, facts_of
from tallybox.vqa.simulation.proposals import Detector
from tallybox.vqa.simulation.scenes import Scene, draw_scene
from tallybox.vqa.simulation.world import World, prototypes
from tallybox.vqa.simulation.writing import write_split

FEATURES = "features.tsv"
DESCRIPTION = "made up by tallybox vqa simulate"


def simulate(
    out: Path, world: World | None = None, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, int]:
    """Write a made-up data set and return how many questions each split has; the same world gives the same files."""
    world = world or World()
    out.mkdir(parents=True, exist_ok=True)
    sizes = {"train": world.train_photos, "val": world.val_photos, "test": world.test_photos}
    scenes: dict[str, list[Scene]] = {}
    questions: dict[str, int] = {}
    first_id = 1
    for number, (split, size) in enumerate(sizes.items(), start=1):
        random = np.random.default_rng([world.seed, number])
        scenes[split] = [draw_scene(image_id, world, random) for image_id in range(first_id, first_id + size)]
        first_id += size
        image_ids = [scene.image_id for scene in scenes[split]]
        facts = [facts_of(scene) for scene in scenes[split]]
        asked, pairs = ask(image_ids, facts, WORDINGS, world.questions_per_photo, random)
        if asked:
            write_split(
                out, split, asked, pairs, disagreement=world.disagreement, random=random, description=DESCRIPTION
            )
            questions[split] = len(asked)
    everything = [scene for some in scenes.values() for scene in some]
    write_tsv(out / FEATURES, _photos(everything, world, on_progress))
    return questions


def _photos(scenes: list[Scene], world: World, on_progress: Callable[[int, int], None]) -> Iterator[Photo]:
    detector = Detector(world, prototypes(world))
    random = np.random.default_rng([world.seed, 4])
    for number, scene in enumerate(scenes, start=1):
        yield detector.look(scene, random)
        on_progress(number, len(scenes))
