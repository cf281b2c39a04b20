"""What is asked about annotated photos, in which words, and the files that it is written to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tallybox.detections.labels import TrueCounts
from tallybox.errors import InputError
from tallybox.vqa.category_words import UNIONS
from tallybox.vqa.simulation.asking import Query, Words, ask
from tallybox.vqa.simulation.nouns import Noun, noun, other_plurals, synonyms
from tallybox.vqa.simulation.writing import write_split

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
# What COCO's supercategories are called in a question; those that say nothing of what a thing is are not asked about.
GENERAL = {
    "electronic": "electronic device",
    "furniture": "piece of furniture",
    "sports": "piece of sports equipment",
    "kitchen": "kitchen item",
}
NOT_ASKED = frozenset({"", "outdoor", "indoor", "person"})
# COCO's own, for files whose categories do not say.
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


def write_questions(
    labels: TrueCounts,
    generals: Mapping[int, str],
    out: Path,
    split: str,
    questions_per_photo: int,
    seed: int,
    *,
    source: Path,
    other_words: bool = True,
) -> int:
    """Write a split's questions about all labelled photos and return how many there are.

    ``generals`` says what a category is (`general_name`), ``source`` which file the labels are from. Without
    ``other_words`` each category is called by its name.
    """
    image_ids = [image_id for image_id in labels.counts if isinstance(image_id, int)]
    if len(image_ids) < max(len(labels), 1):
        raise InputError(f"{source} must have photos with whole numbers as ids, as VQA's files do, but has others")
    facts = [facts_of_photo(labels, image_id, generals, other_words=other_words) for image_id in image_ids]
    random = np.random.default_rng(seed)
    questions, pairs = ask(image_ids, facts, WORDINGS, questions_per_photo, random)
    if not questions:
        raise InputError(f"{source} must have photos that differ in what they show, but no question has two answers")
    write_split(out, split, questions, pairs, disagreement=0.0, random=random, description=DESCRIPTION)
    return len(questions)


def facts_of_photo(
    labels: TrueCounts, image_id: int, generals: Mapping[int, str], *, other_words: bool = True
) -> dict[Query, str]:
    """Return what can be asked about a photo and the true answers; ``generals`` says what a category is.

    >>> labels = TrueCounts({7: {18: 3}}, categories={18: "dog", 17: "cat"})
    >>> facts = facts_of_photo(labels, 7, {18: "animal", 17: "animal"})
    >>> [(dict(query.words)["plural"], answer) for query, answer in facts.items() if query.family == "count"]
    [('dogs', '3'), ('cats', '0'), ('animals', '3')]
    """
    facts: dict[Query, str] = {}
    present: dict[str, list[str]] = {}
    for category_id, name in labels.categories.items():
        crowded = (image_id, category_id) in labels.unknown
        count = labels.count(image_id, category_id)
        words = noun(name)
        if not crowded:
            plurals: tuple[Words, ...] = tuple((("plural", other),) for other in other_plurals(name))
            facts[Query("count", (("plural", words.plural),), plurals if other_words else ())] = str(count)
        same = tuple(map(_some, synonyms(name)))
        facts[Query("exists", _some(words), same if other_words else ())] = "yes" if count or crowded else "no"
        if count or crowded:
            present.setdefault(generals.get(category_id, ""), []).append(name)
    for general, names in present.items():
        if general and len(names) == 1:
            facts[Query("which", (("general", general),))] = names[0]
    return facts | (_facts_of_unions(labels, image_id, generals) if other_words else {})


def _facts_of_unions(labels: TrueCounts, image_id: int, generals: Mapping[int, str]) -> dict[Query, str]:
    """Return what can be asked about several categories together: "How many animals"."""
    facts: dict[Query, str] = {}
    for general in UNIONS:
        members = [category_id for category_id in labels.categories if generals.get(category_id) == general]
        crowded = any((image_id, category_id) in labels.unknown for category_id in members)
        count = sum(labels.count(image_id, category_id) for category_id in members)
        if members and not crowded:
            facts[Query("count", (("plural", noun(general).plural),))] = str(count)
        if members:
            facts[Query("exists", _some(noun(general)))] = "yes" if count or crowded else "no"
    return facts


def _some(words: Noun) -> Words:
    return (("be", words.be), ("some", words.some))


def general_name(category: str, supercategory: str = "") -> str:
    """Return what a category is called where one of several of its sort is asked for, or nothing if that is not asked.

    >>> general_name("tv"), general_name("person")
    ('electronic device', '')
    """
    general = supercategory or COCO_GENERAL.get(category, "")
    return "" if general in NOT_ASKED else GENERAL.get(general, general)
