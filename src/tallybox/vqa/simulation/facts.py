"""What can be asked about a made-up scene, what the answer is, and in which words."""

from __future__ import annotations

from tallybox.vqa.simulation.asking import Query
from tallybox.vqa.simulation.scenes import Scene
from tallybox.vqa.simulation.world import CLASS_OF, COLOURS, KINDS, PLURALS, SIZES, SUPPORTS

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


def facts_of(scene: Scene) -> dict[Query, str]:
    """Return all that can be asked about a scene and the true answers."""
    facts: dict[Query, str] = {}

    def add(family: str, answer: object, **words: str) -> None:
        said = {True: "yes", False: "no"}[answer] if isinstance(answer, bool) else str(answer)
        facts[Query(family, tuple(words.items()))] = said

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
