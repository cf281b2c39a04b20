"""Other words for names of categories: plurals and synonyms."""


def entries(text: str) -> dict[str, str]:
    """Return the dict that a text such as ``tooth: teeth; mouse: mice`` stands for."""
    return dict(entry.split(": ") for entry in text.split("; "))


IRREGULAR = entries(
    "person: people; man: men; woman: women; child: children; foot: feet; tooth: teeth; mouse: mice; goose: geese; "
    "wolf: wolves; calf: calves; knife: knives; leaf: leaves; loaf: loaves; shelf: shelves; tomato: tomatoes; "
    "potato: potatoes; tv: TVs; sheep: sheep; fish: fish; deer: deer; aircraft: aircraft"
)
_SYNONYMS = entries(
    "person: human; bicycle: bike; car: automobile; motorcycle: motorbike; airplane: plane, aeroplane, aircraft; "
    "boat: ship; fire hydrant: hydrant; backpack: rucksack; handbag: purse; tie: necktie; frisbee: flying disc; "
    "sports ball: ball; baseball bat: bat; baseball glove: mitt; tennis racket: racket, racquet; cup: mug; "
    "donut: doughnut; couch: sofa; potted plant: plant, houseplant; dining table: table; tv: television; "
    "laptop: notebook computer; mouse: computer mouse; remote: remote control; "
    "cell phone: phone, cellphone, mobile phone, smartphone; microwave: microwave oven; refrigerator: fridge; "
    "teddy bear: teddy, stuffed animal; hair drier: hair dryer, hairdryer"
)
SYNONYMS = {name: tuple(words.split(", ")) for name, words in _SYNONYMS.items()}
OTHER_PLURALS = {"person": "persons", "skis": "ski"}


def plural(name: str) -> str:
    """Return a name with its last word in the plural.

    >>> plural("person"), plural("teddy bear"), plural("puppy"), plural("bench")
    ('people', 'teddy bears', 'puppies', 'benches')
    """
    before, space, word = name.rpartition(" ")
    if word in IRREGULAR:
        return before + space + IRREGULAR[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{name}es"
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return f"{name[:-1]}ies"
    return f"{name}s"


def spellings(name: str) -> tuple[str, ...]:
    """Return a name with its plurals."""
    return tuple(dict.fromkeys((name, plural(name), OTHER_PLURALS.get(name, name))))
