"""Balanced questions about annotated photos (COCO instances), as official files with the answers of ten people.

The facts of a photo are all questions that have an answer there. Questions are drawn from them by family, and each is
also asked about another photo where the answer differs: these are the balanced pairs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from category_words import HYPONYMS, OTHER_PLURALS, SYNONYMS, UNIONS
from numpy.typing import NDArray

from tallybox.detections.categories import plural
from tallybox.detections.coco import INSTANCES, Int64, JsonRecord, read_coco_instances
from tallybox.detections.labels import TrueCounts
from tallybox.errors import InputError
from tallybox.files import read_json
from tallybox.vqa.data.questions import ANSWERS_PER_QUESTION
from tallybox.vqa.simulation import RARE_ANSWERS, YEARS, write_json

TYPE_WORDS = 2  # leading words of a question that make its official question_type
# Relative frequency and official answer type of each family of questions.
FAMILIES = {
    "count": (0.36, "number"),
    "exists": (0.13, "yes/no"),
    "which": (0.07, "other"),
}
OTHER_WORDS_SHARE = 0.5

Item = TypeVar("Item")
Words = tuple[tuple[str, str], ...]  # the placeholders of a wording, like {plural}, and their values


class Query(NamedTuple):
    """A possible question: a family and its words, and other words with the same meaning."""

    family: str
    words: Words
    other_words: tuple[Words, ...] = ()


Facts = Mapping[Query, str]  # of one photo: possible questions and their answers


@dataclass(frozen=True)
class SimulatedQuestion:
    """One question about one photo."""

    question_id: int
    image_id: int
    query: Query
    text: str
    truth: str


def write_split(
    folder: Path,
    split: str,
    facts: Mapping[int, Facts],
    wordings: Mapping[str, Sequence[str]],
    per_photo: int,
    random: np.random.Generator,
) -> int:
    """Ask about photos by their ids, write a split's files and return the number of questions; none, no files."""
    questions, pairs = ask(facts, wordings, per_photo, random)
    if not questions:
        return 0
    subtype = YEARS[split]
    common = {"info": {"description": DESCRIPTION}, "data_type": "mscoco", "data_subtype": subtype}
    records = [{"image_id": q.image_id, "question": q.text, "question_id": q.question_id} for q in questions]
    content = {**common, "task_type": "Open-Ended", "questions": records}
    write_json(folder / f"v2_OpenEnded_mscoco_{subtype}_questions.json.gz", content)
    annotations = [_annotation(question) for question in questions]
    write_json(folder / f"v2_mscoco_{subtype}_annotations.json.gz", {**common, "annotations": annotations})
    write_json(folder / f"v2_mscoco_{subtype}_complementary_pairs.json", pairs)
    return len(questions)


def ask(
    facts: Mapping[int, Facts], wordings: Mapping[str, Sequence[str]], per_photo: int, random: np.random.Generator
) -> tuple[list[SimulatedQuestion], list[tuple[int, int]]]:
    """Return questions about photos by their ids, in random order, and up to ``per_photo`` pairs of them a photo."""
    photos_by_answer: dict[Query, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for photo, photo_facts in facts.items():
        for query, answer in photo_facts.items():
            photos_by_answer[query][answer].append(photo)
    drawn: dict[tuple[int, Query, str], SimulatedQuestion] = {}
    numbers: dict[int, int] = defaultdict(int)

    def question_id_of(photo: int, query: Query, text: str) -> int:
        key = photo, query, text
        if key not in drawn:
            question_id = photo * 1000 + numbers[photo]
            numbers[photo] += 1
            drawn[key] = SimulatedQuestion(question_id, photo, query, text, facts[photo][query])
        return drawn[key].question_id

    pairs: set[tuple[int, int]] = set()
    for photo, photo_facts in facts.items():
        for query in _draw_queries(photo_facts, per_photo, random):
            photos = photos_by_answer[query]
            other_answers = [answer for answer in photos if answer != photo_facts[query]]
            if not other_answers:
                continue
            answer = other_answers[int(random.choice(len(other_answers), p=_weights(photos, other_answers)))]
            counterpart = _draw(photos[answer], random)
            text = _draw(wordings[query.family], random).format(**dict(_draw_words(query, random)))
            first, second = sorted(question_id_of(image_id, query, text) for image_id in (photo, counterpart))
            pairs.add((first, second))
    questions = list(drawn.values())
    order = random.permutation(len(questions))
    return [questions[index] for index in order], sorted(pairs)


def _draw_queries(facts: Facts, number: int, random: np.random.Generator) -> list[Query]:
    """Draw different questions: a family, then one of its answers, then a question with that answer."""
    by_family: dict[str, dict[str, list[Query]]] = defaultdict(lambda: defaultdict(list))
    for query, answer in facts.items():
        by_family[query.family][answer].append(query)
    families = [family for family in FAMILIES if family in by_family]
    shares = np.array([FAMILIES[family][0] for family in families])
    drawn: list[Query] = []
    for _ in range(number):
        family = families[int(random.choice(len(families), p=shares / shares.sum()))]
        answers = list(by_family[family])
        weights = np.array([RARE_ANSWERS.get(answer, 1.0) for answer in answers])
        answer = answers[int(random.choice(len(answers), p=weights / weights.sum()))]
        query = _draw(by_family[family][answer], random)
        if query not in drawn:
            drawn.append(query)
    return drawn


def _draw_words(query: Query, random: np.random.Generator) -> Words:
    """Draw the words of a question: its first ones in half of the cases, else others with the same meaning."""
    if query.other_words and random.random() < OTHER_WORDS_SHARE:
        return _draw(query.other_words, random)
    return query.words


def _draw(items: Sequence[Item], random: np.random.Generator) -> Item:
    return items[int(random.integers(len(items)))]


def _weights(photos: Mapping[str, Sequence[int]], answers: Sequence[str]) -> NDArray[np.float64]:
    """Return the probabilities of answers: by the number of photos that have them, except rare ones."""
    total = sum(len(photos[answer]) for answer in answers if answer not in RARE_ANSWERS) or 1
    weights = np.array([RARE_ANSWERS[a] * total if a in RARE_ANSWERS else len(photos[a]) for a in answers])
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def _annotation(question: SimulatedQuestion) -> dict[str, Any]:
    return {
        "question_id": question.question_id,
        "image_id": question.image_id,
        "question_type": " ".join(question.text.lower().split()[:TYPE_WORDS]),
        "answer_type": FAMILIES[question.query.family][1],
        "multiple_choice_answer": question.truth,
        "answers": [
            {"answer": question.truth, "answer_confidence": "yes", "answer_id": number}
            for number in range(1, ANSWERS_PER_QUESTION + 1)
        ],
    }


WORDINGS = {
    "count": (
        "How many {plural} are there?",
        "How many {plural} are in the photo?",
        "How many {plural} can you see?",
        "How many {plural} does the photo show?",
    ),
    "exists": (
        "{be} there {some} in the photo?",
        "{be} there {some} here?",
        "Can you see {some}?",
        "Does the photo show {some}?",
    ),
    "which": (
        "Which {general} is in the photo?",
        "Which {general} can you see?",
        "Which {general} does the photo show?",
    ),
}
# The names of COCO's supercategories in questions, where they differ, and those that are never asked about.
GENERAL = {
    "electronic": "electronic device",
    "furniture": "piece of furniture",
    "sports": "piece of sports equipment",
    "kitchen": "kitchen item",
}
NOT_ASKED = frozenset({"", "outdoor", "indoor", "person"})
# COCO's supercategories, for files without them.
COCO_GENERAL = {
    name: general
    for general, names in {
        **UNIONS,
        "accessory": ("backpack", "umbrella", "handbag", "tie", "suitcase"),
        "food": (
            *("banana", "apple", "sandwich", "orange", "broccoli"),
            *("carrot", "hot dog", "pizza", "donut", "cake"),
        ),
        "furniture": ("chair", "couch", "potted plant", "bed", "dining table", "toilet"),
        "electronic": ("tv", "laptop", "mouse", "remote", "keyboard", "cell phone"),
        "appliance": ("microwave", "oven", "toaster", "sink", "refrigerator"),
    }.items()
    for name in names
}
DESCRIPTION = "written by tallybox from what photos show"
PAIRED = frozenset(
    {"scissors", "skis", "glasses", "sunglasses", "trousers", "pants", "jeans", "binoculars", "headphones"}
)
UNCOUNTED = frozenset({"broccoli", "bread", "rice", "food", "furniture", "luggage", "fruit"})
WRITTEN = {"tv": "TV"}


class _SupercategoryRecord(JsonRecord):
    id: Int64
    name: str
    supercategory: str = ""


class _CategoriesFile(JsonRecord):
    categories: list[_SupercategoryRecord]


def simulate_from_instances(
    instances: Path, out: Path, *, split: str = "train", questions_per_photo: int = 3, seed: int = 0
) -> dict[str, int]:
    """Write a split's questions, answers and pairs about the photos of a file; return the number of questions.

    All ten people give the true answer. A crowd is not counted, but its category is known to be present.
    """
    if split not in ("train", "val"):
        raise InputError(f"split must be train or val, as there are answers, but got {split!r}")
    labels = read_coco_instances(instances)
    image_ids = [image_id for image_id in labels.counts if isinstance(image_id, int)]
    if len(image_ids) < max(len(labels), 1):
        raise InputError(f"{instances} must have photos with whole numbers as ids, as VQA's files do, but has others")
    categories = read_json(instances, _CategoriesFile, INSTANCES).categories
    generals = {category.id: general_name(category.name, category.supercategory) for category in categories}
    facts = {image_id: photo_facts(labels, image_id, generals) for image_id in image_ids}
    random = np.random.default_rng(seed)
    number = write_split(out, split, facts, WORDINGS, questions_per_photo, random)
    if not number:
        raise InputError(f"{instances} must have photos that differ in what they show, but no question has two answers")
    return {split: number}


def photo_facts(labels: TrueCounts, image_id: int, generals: Mapping[int, str]) -> dict[Query, str]:
    """Return the possible questions about a photo and their answers; ``generals`` has each category's `general_name`.

    >>> labels = TrueCounts({7: {18: 3}}, categories={18: "dog", 17: "cat"})
    >>> facts = photo_facts(labels, 7, {18: "animal", 17: "animal"})
    >>> [(dict(query.words)["plural"], answer) for query, answer in facts.items() if query.family == "count"]
    [('dogs', '3'), ('cats', '0'), ('animals', '3')]
    """
    facts = category_facts(labels, image_id, generals)
    for general in UNIONS:  # several categories together: "How many animals"
        if members := [category_id for category_id in labels.categories if generals.get(category_id) == general]:
            facts |= _count_facts(labels, image_id, members, general)
    return facts


def category_facts(labels: TrueCounts, image_id: int, generals: Mapping[int, str]) -> dict[Query, str]:
    """Return the facts about single categories."""
    facts: dict[Query, str] = {}
    present: dict[str, list[str]] = {}
    for category_id, name in labels.categories.items():
        counts = _count_facts(labels, image_id, [category_id], name)
        facts |= counts
        if "yes" in counts.values():
            present.setdefault(generals.get(category_id, ""), []).append(name)
    for general, names in present.items():
        if general and len(names) == 1:
            facts[Query("which", (("general", general),))] = names[0]
    return facts


def _count_facts(labels: TrueCounts, image_id: int, category_ids: Sequence[int], name: str) -> dict[Query, str]:
    """Return how many things of the categories there are, unless there is a crowd, and whether there are any."""
    facts: dict[Query, str] = {}
    crowded = any((image_id, category_id) in labels.unknown for category_id in category_ids)
    count = sum(labels.count(image_id, category_id) for category_id in category_ids)
    if not crowded:
        first, *rest = [(("plural", text),) for text in (noun(name).plural, *other_plurals(name))]
        facts[Query("count", first, tuple(rest))] = str(count)
    nouns = [noun(word) for word in (name, *SYNONYMS.get(name, ()))]
    words: list[Words] = [(("be", forms.be), ("some", forms.some)) for forms in nouns]
    facts[Query("exists", words[0], tuple(words[1:]))] = "yes" if count or crowded else "no"
    return facts


def general_name(category: str, supercategory: str = "") -> str:
    """Return the general name of a category in questions like "Which animal …?"; empty if that is never asked.

    >>> general_name("tv"), general_name("person")
    ('electronic device', '')
    """
    general = supercategory or COCO_GENERAL.get(category, "")
    return "" if general in NOT_ASKED else GENERAL.get(general, general)


class Noun(NamedTuple):
    """The words of a category: ``be`` and ``some`` in "Is there a dog", ``plural`` in "How many dogs"."""

    be: str
    some: str
    plural: str


def noun(name: str) -> Noun:
    """Return the words of a category; the last word of its name is the noun.

    >>> noun("dining table"), noun("person").plural, noun("umbrella").some
    (Noun(be='Is', some='a dining table', plural='dining tables'), 'people', 'an umbrella')
    >>> noun("scissors"), noun("broccoli").plural
    (Noun(be='Are', some='any scissors', plural='pairs of scissors'), 'pieces of broccoli')
    """
    *before, last = name.split(" ")
    if last in PAIRED:
        return Noun("Are", f"any {name}", f"pairs of {name}")
    if last in UNCOUNTED:
        return Noun("Is", f"any {name}", f"pieces of {name}")
    singular = " ".join([*before, WRITTEN.get(last, last)])
    article = "an" if singular[0].lower() in "aeiou" else "a"
    return Noun("Is", f"{article} {singular}", plural(name))


def other_plurals(name: str) -> tuple[str, ...]:
    """Return other plurals for the things of a category, or for a part of them.

    >>> other_plurals("dog"), other_plurals("bicycle"), other_plurals("zebra")
    (('puppies',), ('bikes',), ())
    """
    second = [OTHER_PLURALS[name]] if name in OTHER_PLURALS else []
    return (*second, *map(plural, (*SYNONYMS.get(name, ()), *HYPONYMS.get(name, ()))))
