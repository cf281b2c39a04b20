"""Balanced questions about annotated photos (COCO instances), as official files with the answers of ten people.

The facts of a photo are all questions that have an answer there. Questions are drawn from them by family, and each is
also asked about another photo where the answer differs: these are the balanced pairs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from category_words import HYPONYMS, OTHER_PLURALS, SYNONYMS, UNIONS

from tallybox.detections.categories import plural
from tallybox.detections.coco import INSTANCES, Int64, JsonRecord, read_coco_instances
from tallybox.detections.labels import TrueCounts
from tallybox.errors import InputError
from tallybox.files import read_json
from tallybox.vqa.simulation import Families, Query, Words, write_split

# Relative frequency, official answer type and wordings of each family of questions.
FAMILIES: Families = {
    "count": (
        0.36,
        "number",
        (
            "How many {plural} are there?",
            "How many {plural} are in the photo?",
            "How many {plural} can you see?",
            "How many {plural} does the photo show?",
        ),
    ),
    "exists": (
        0.13,
        "yes/no",
        (
            "{be} there {some} in the photo?",
            "{be} there {some} here?",
            "Can you see {some}?",
            "Does the photo show {some}?",
        ),
    ),
    "which": (
        0.07,
        "other",
        (
            "Which {general} is in the photo?",
            "Which {general} can you see?",
            "Which {general} does the photo show?",
        ),
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
    number = write_split(out, split, facts, questions_per_photo, random, FAMILIES)
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
