"""How names of categories are used in questions: one, some, many."""

from __future__ import annotations

from typing import NamedTuple

from tallybox.vqa.category_words import KINDS, OTHER_PLURALS, SYNONYMS, plural

PAIRED = frozenset(
    {"scissors", "skis", "glasses", "sunglasses", "trousers", "pants", "jeans", "binoculars", "headphones"}
)
UNCOUNTED = frozenset({"broccoli", "bread", "rice", "food", "furniture", "luggage", "fruit"})
WRITTEN = {"tv": "TV"}


class Noun(NamedTuple):
    """The words of a category: ``be`` and ``some`` in "Is there a dog", ``plural`` in "How many dogs"."""

    be: str
    some: str
    plural: str


def noun(name: str) -> Noun:
    """Return the words of a category by its name, the last word of which is what it is.

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
    """Return other words for many of a category, those for some of its things too.

    >>> other_plurals("dog"), other_plurals("bicycle"), other_plurals("zebra")
    (('puppies',), ('bikes',), ())
    """
    spelled = [OTHER_PLURALS[name]] if name in OTHER_PLURALS else []
    return (*spelled, *map(plural, (*SYNONYMS.get(name, ()), *KINDS.get(name, ()))))


def synonyms(name: str) -> tuple[Noun, ...]:
    """Return other words for the same things.

    >>> synonyms("bicycle")
    (Noun(be='Is', some='a bike', plural='bikes'),)
    """
    return tuple(map(noun, SYNONYMS.get(name, ())))
