"""How names of categories are used in questions: one, some, many."""

from __future__ import annotations

from typing import NamedTuple

IRREGULAR = {
    "person": "people",
    "man": "men",
    "woman": "women",
    "child": "children",
    "foot": "feet",
    "tooth": "teeth",
    "mouse": "mice",
    "goose": "geese",
    "wolf": "wolves",
    "calf": "calves",
    "knife": "knives",
    "leaf": "leaves",
    "loaf": "loaves",
    "shelf": "shelves",
    "tomato": "tomatoes",
    "potato": "potatoes",
    "tv": "TVs",
    **dict.fromkeys(("sheep", "fish", "deer", "aircraft"), ""),  # one as many
}
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
    return Noun("Is", f"{article} {singular}", " ".join([*before, _plural(last)]))


def _plural(word: str) -> str:
    if word in IRREGULAR:
        return IRREGULAR[word] or word
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return f"{word[:-1]}ies"
    return f"{word}s"
