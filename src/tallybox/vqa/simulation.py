"""A synthetic world in the official formats, for `tallybox vqa demo` and tests: scenes, proposals, questions, answers.

Numbers of objects and of proposals are drawn independently of the number of each kind, so neither reveals a count: one
dog may have seven proposals, and five dogs may share seven. Each question is also asked about another photo with
another answer: these are the balanced pairs.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tallybox.boxes import numpy_box_iou
from tallybox.files import atomic_writing
from tallybox.vqa.config import Checked
from tallybox.vqa.data.questions import ANSWERS_PER_QUESTION
from tallybox.vqa.data.store import PhotoFeatures, write_tsv

FEATURES = "features.tsv"
YEARS = {"train": "train2014", "val": "val2014", "test": "test2015"}
SIZE_WH = (640, 480)
KINDS = ("dog", "cat", "horse", "car", "truck", "bicycle", "apple", "pear", "lemon", "ball", "kite", "doll")
COLOURS = ("red", "blue", "green", "yellow", "black", "white")
CLUTTER = ("tree", "rock", "bush", "lamp", "window", "cloud")  # never asked about
ENCODED = (*KINDS, *COLOURS, *CLUTTER, "part")  # in the features of a proposal
GROUPS = 2  # kinds in a scene
COUNTS = np.array([0.3, 0.24, 0.2, 0.15, 0.11])  # probabilities of 1 to 5 objects of a kind
OBJECTS = (11, 14)  # in a scene, clutter included: a range of numpy's Generator.integers
SIDES = (44, 104)  # pixels of an object
PROPOSALS_PER_KIND = (5, 8)  # unless there are more objects
PROPOSALS = (24, 29)  # in a scene
MAX_IOU = 0.97  # of a duplicate with its object
JITTER = 0.13  # standard deviation of a duplicate's corners, relative to the side
CANDIDATES = 32  # random boxes to choose from
# Relative frequency, official answer type and wordings of each family of questions.
FAMILIES: Final = {
    "count": (0.5, "number", ("How many {kind}s are there?", "How many {kind}s can you see?")),
    "exists": (0.25, "yes/no", ("Is there {article} {kind}?", "Can you see {article} {kind}?")),
    "colour": (0.25, "other", ("What color is the {kind}?", "What is the color of the {kind}?")),
}
OTHER_WORDS_SHARE = 0.5
RARE_ANSWERS = {"0": 0.15}  # most kinds are absent from a photo: nearly all answers would be 0

Floats = NDArray[np.float64]
Item = TypeVar("Item")
Families = Mapping[str, tuple[float, str, tuple[str, ...]]]
Words = tuple[tuple[str, str], ...]


class Query(NamedTuple):
    """A possible question: a family and the words of its wording, like {kind}."""

    family: str
    words: Words
    other_words: tuple[Words, ...] = ()  # with the same meaning, used in half of the cases


Facts = Mapping[int, Mapping[Query, str]]  # by photo: possible questions and their answers


@dataclass(frozen=True)
class World(Checked):
    """How many photos are simulated, and how difficult they are.

    ``difficulty`` from 0 to 1 scales noise of features, jitter and parts of duplicates, and overlap of objects.
    """

    train_photos: int = 3000
    val_photos: int = 1000
    test_photos: int = 200
    questions_per_photo: int = 3  # each with a counterpart about another photo
    features: int = 64
    difficulty: float = 0.4
    seed: int = 0


@dataclass(frozen=True)
class Scene:
    """One photo: the objects of each kind with their boxes, the kind's colour, and clutter."""

    boxes: dict[str, Floats]  # by kind, [n, 4] pixels
    colours: dict[str, str]  # by kind
    clutter: list[tuple[str, Floats]]

    def facts(self) -> dict[Query, str]:
        """Return the possible questions about the scene and their answers."""
        facts: dict[Query, str] = {}
        for kind in KINDS:
            word, article = ("kind", kind), ("article", "an" if kind[0] in "aeiou" else "a")
            facts[Query("count", (word,))] = str(len(self.boxes.get(kind, ())))
            facts[Query("exists", (word, article))] = "yes" if kind in self.boxes else "no"
            if kind in self.colours:
                facts[Query("colour", (word,))] = self.colours[kind]
        return facts


def simulate(
    out: Path, world: World | None = None, on_progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, int]:
    """Write a data set and return the number of questions of each split; the same world gives the same files."""
    world = world or World()
    scenes: dict[int, Scene] = {}
    questions: dict[str, int] = {}
    sizes = {"train": world.train_photos, "val": world.val_photos, "test": world.test_photos}
    for number, (split, size) in enumerate(sizes.items(), start=1):
        random = np.random.default_rng([world.seed, number])
        drawn = {len(scenes) + 1 + photo: draw_scene(world, random) for photo in range(size)}
        scenes |= drawn
        facts = {image_id: scene.facts() for image_id, scene in drawn.items()}
        questions[split] = write_split(out, split, facts, world.questions_per_photo, random)
    detector = Detector(world)

    def photos() -> Iterator[PhotoFeatures]:
        for done, (image_id, scene) in enumerate(scenes.items(), start=1):
            yield detector.detect(image_id, scene)
            on_progress(done, len(scenes))

    write_tsv(out / FEATURES, photos())
    return {split: number for split, number in questions.items() if number}


def draw_scene(world: World, random: Generator) -> Scene:
    """Draw a random scene whose objects overlap little."""
    kinds = random.choice(KINDS, size=GROUPS, replace=False).tolist()
    counts = (random.choice(len(COUNTS), size=GROUPS, p=COUNTS) + 1).tolist()
    taken = np.empty((0, 4))

    def place(number: int) -> Floats:
        nonlocal taken
        for _ in range(number):
            sides = random.uniform(*SIDES, (CANDIDATES, 2))
            corners = random.uniform(0, 1, (CANDIDATES, 2)) * (np.array(SIZE_WH) - sides)
            boxes = np.concatenate((corners, corners + sides), axis=1)
            overlap = numpy_box_iou(boxes, taken).max(1, initial=0)
            allowed = overlap <= 0.05 + 0.3 * world.difficulty
            taken = np.vstack((taken, boxes[allowed.argmax() if allowed.any() else overlap.argmin()]))
        return taken[-number:]

    groups = dict(zip(kinds, (place(count) for count in counts), strict=True))
    colours = dict(zip(kinds, random.choice(COLOURS, size=GROUPS).tolist(), strict=True))
    clutter = max(int(random.integers(*OBJECTS)) - sum(counts), 1)
    return Scene(groups, colours, [(str(random.choice(CLUTTER)), box) for box in place(clutter)])


class Detector:
    """Turns scenes into proposals: several for each object, some of parts, and clutter, in random order."""

    def __init__(self, world: World) -> None:
        self._world, self._random = world, np.random.default_rng([world.seed, 4])
        drawn = np.random.default_rng([world.seed, 0]).normal(size=(len(ENCODED), world.features))
        self._directions = dict(zip(ENCODED, drawn / np.linalg.norm(drawn, axis=1, keepdims=True), strict=True))

    def detect(self, image_id: int, scene: Scene) -> PhotoFeatures:
        """Return the proposals of a scene."""
        random, difficulty, total = self._random, self._world.difficulty, int(self._random.integers(*PROPOSALS))
        boxes: list[Floats] = []
        features: list[Floats] = []
        for kind, objects in scene.boxes.items():
            number = max(int(random.integers(*PROPOSALS_PER_KIND)), len(objects))
            chosen = [*range(len(objects)), *random.integers(len(objects), size=number - len(objects)).tolist()]
            shared = self._directions[kind] + 0.8 * self._directions[scene.colours[kind]]
            looks = [shared + self._noise(0.8 * difficulty) for _ in objects]
            for rank, (index, box) in enumerate(zip(chosen, self._jitter(objects[chosen]), strict=True)):
                is_part = rank >= len(objects) and random.random() < 0.2 * difficulty
                boxes.append(_part(objects[index], random) if is_part else box)
                features.append(looks[index] + 0.7 * self._directions["part"] * is_part)
        missing = max(total - len(boxes), len(scene.clutter))
        chosen = [place % len(scene.clutter) for place in range(missing)]
        boxes += list(self._jitter(np.stack([scene.clutter[index][1] for index in chosen])))
        features += [self._directions[scene.clutter[index][0]] for index in chosen]
        order = random.permutation(len(boxes))
        noisy = np.stack([features[index] + self._noise(1.2 * difficulty) for index in order])
        inside = np.clip(np.stack(boxes)[order], 0, (*SIZE_WH, *SIZE_WH))
        return PhotoFeatures(str(image_id), SIZE_WH, inside.astype(np.float32), noisy.astype(np.float32))

    def _jitter(self, boxes: Floats) -> Floats:
        """Return a jittered copy of each box ``[N, 4]`` that still overlaps it well."""
        sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
        candidates = boxes + self._random.normal(0, JITTER, (CANDIDATES, *boxes.shape)) * sides
        overlap = numpy_box_iou(candidates.swapaxes(0, 1), boxes[:, None])[..., 0].T  # [candidates, N]
        allowed = (overlap >= 0.8 - 0.4 * self._world.difficulty) & (overlap <= MAX_IOU)
        first = np.where(allowed.any(0), allowed.argmax(0), overlap.argmax(0))
        return np.asarray(candidates[first, np.arange(len(boxes))])

    def _noise(self, length: float) -> Floats:
        return self._random.normal(0, length / np.sqrt(self._world.features), self._world.features)


def _part(box: Floats, random: Generator) -> Floats:
    """Return about a third of a box, at its left or upper end."""
    part, axis = box.copy(), int(random.integers(2))
    part[axis + 2] = box[axis] + random.uniform(0.25, 0.45) * (box[axis + 2] - box[axis])
    return part


def write_split(
    folder: Path, split: str, facts: Facts, per_photo: int, random: Generator, families: Families = FAMILIES
) -> int:
    """Ask about photos, write a split's official files, return the number of questions; all ten answers are true."""
    asked, pairs = ask(facts, per_photo, random, families)
    if not asked:
        return 0
    questions = [{"question_id": one, "image_id": photo, "question": text} for one, (photo, _, text) in asked.items()]
    write_json(folder / f"v2_OpenEnded_mscoco_{YEARS[split]}_questions.json.gz", {"questions": questions})
    if split != "test":
        annotations = [
            {
                "question_id": question_id,
                "image_id": photo,
                "question_type": " ".join(text.lower().split()[:2]),
                "answer_type": families[query.family][1],
                "answers": [{"answer": facts[photo][query]}] * ANSWERS_PER_QUESTION,
            }
            for question_id, (photo, query, text) in asked.items()
        ]
        write_json(folder / f"v2_mscoco_{YEARS[split]}_annotations.json.gz", {"annotations": annotations})
        write_json(folder / f"v2_mscoco_{YEARS[split]}_complementary_pairs.json", pairs)
    return len(asked)


def ask(
    facts: Facts, per_photo: int, random: Generator, families: Families
) -> tuple[dict[int, tuple[int, Query, str]], list[tuple[int, int]]]:
    """Return (photo, query, text) by question id, in random order, and up to ``per_photo`` pairs of ids a photo."""
    photos_by_answer: dict[Query, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for photo, photo_facts in facts.items():
        for query, answer in photo_facts.items():
            photos_by_answer[query][answer].append(photo)
    ids: dict[tuple[int, Query, str], int] = {}
    numbers: dict[int, int] = defaultdict(int)
    pairs: set[tuple[int, int]] = set()
    for photo, photo_facts in facts.items():
        for query in _draw_queries(photo_facts, per_photo, random, families):
            photos = photos_by_answer[query]
            others = [answer for answer in photos if answer != photo_facts[query]]
            if not others:
                continue
            total = sum(len(photos[answer]) for answer in others if answer not in RARE_ANSWERS) or 1
            weights = [RARE_ANSWERS[a] * total if a in RARE_ANSWERS else len(photos[a]) for a in others]
            counterpart = _draw(photos[_draw(others, random, weights)], random)
            wording, words = _draw(families[query.family][2], random), query.words
            if query.other_words and random.random() < OTHER_WORDS_SHARE:
                words = _draw(query.other_words, random)
            text = wording.format(**dict(words))
            for image_id in (photo, counterpart):
                if (image_id, query, text) not in ids:
                    ids[image_id, query, text] = image_id * 1000 + numbers[image_id]
                    numbers[image_id] += 1
            first, second = sorted(ids[image_id, query, text] for image_id in (photo, counterpart))
            pairs.add((first, second))
    asked = list(ids)
    return {ids[asked[index]]: asked[index] for index in random.permutation(len(asked)).tolist()}, sorted(pairs)


def _draw_queries(facts: Mapping[Query, str], number: int, random: Generator, families: Families) -> list[Query]:
    """Draw different questions: a family, then one of its answers, then a question with that answer."""
    by_family: dict[str, dict[str, list[Query]]] = defaultdict(lambda: defaultdict(list))
    for query, answer in facts.items():
        by_family[query.family][answer].append(query)
    present = [family for family in families if family in by_family]
    drawn: dict[Query, None] = {}
    for _ in range(number):
        answers = by_family[_draw(present, random, [families[family][0] for family in present])]
        answer = _draw(list(answers), random, [RARE_ANSWERS.get(answer, 1.0) for answer in answers])
        drawn[_draw(answers[answer], random)] = None
    return list(drawn)


def _draw(items: Sequence[Item], random: Generator, weights: Sequence[float] | None = None) -> Item:
    shares = None if weights is None else np.array(weights) / np.sum(weights)
    return items[int(random.choice(len(items), p=shares))]


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically, gzipped if the name ends in ``.gz``; the same content gives the same bytes."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    with atomic_writing(path) as file:
        file.write(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
