"""Categories: COCO's 80 names, looking up a name, and matching the categories of two sources by name."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from tallybox.errors import InputError, did_you_mean

ClassNames = Sequence[str] | Mapping[int, str] | None  # of a detector, by class number

# By id from 1 on; COCO has no category where there is a dash.
_COCO_NAMES = (
    "person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, -, stop sign, "
    "parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, -, backpack, umbrella, "
    "-, -, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, "
    "skateboard, surfboard, tennis racket, bottle, -, wine glass, cup, fork, knife, spoon, bowl, banana, apple, "
    "sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, -, "
    "dining table, -, -, toilet, -, tv, laptop, mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, "
    "refrigerator, -, book, clock, vase, scissors, teddy bear, hair drier, toothbrush"
)
COCO_CATEGORIES: Mapping[int, str] = MappingProxyType(
    {category_id: name for category_id, name in enumerate(_COCO_NAMES.split(", "), start=1) if name != "-"}
)
COCO_CATEGORY_IDS = tuple(COCO_CATEGORIES)  # by class number of a detector that numbers COCO's categories from 0 to 79

MAX_SHOWN = 200  # characters of an unknown name that an error quotes
MAX_LISTED = 3  # names that a message lists
NOT_CATEGORIES = frozenset({"", "n/a", "background", "__background__"})  # class names that are no categories
IRREGULAR_PLURALS = {
    "person": "people",
    "man": "men",
    "woman": "women",
    "child": "children",
    "mouse": "mice",
    "knife": "knives",
    "calf": "calves",
    "sheep": "sheep",
    "skis": "skis",
    "scissors": "scissors",
    "tv": "TVs",
}


def find_category(name: str, categories: Mapping[int, str] = COCO_CATEGORIES) -> int | None:
    """Return the id of a category by its name, or None; case matters only between names that differ in nothing else."""
    exact = [key for key, category in categories.items() if category == name]
    matches = exact[:1] or [key for key, category in categories.items() if _plain(category) == _plain(name)]
    return matches[0] if len(matches) == 1 else None


def ids_by_name(source: Mapping[int, str], target: Mapping[int, str] = COCO_CATEGORIES) -> dict[int, int]:
    """Return the target's ids of those categories of a source that it has, matched by name."""
    return {key: found for key, name in source.items() if (found := find_category(name, target)) is not None}


def category_id_of(name: str, categories: Mapping[int, str] = COCO_CATEGORIES) -> int:
    """Return the id of a category by its name; the error for an unknown name suggests a similar one."""
    if (category_id := find_category(name, categories)) is not None:
        return category_id
    hint = did_you_mean(name, categories.values()) or f"; known are {listed_names(categories, categories)}"
    raise InputError(f"Unknown category {name[:MAX_SHOWN]!r}{hint}")


def listed_names(category_ids: Collection[int], categories: Mapping[int, str] = COCO_CATEGORIES) -> str:
    """Return the names of the first few categories, as messages list them."""
    first = [categories.get(key, str(key)) for key in sorted(category_ids)[:MAX_LISTED]]
    return ", ".join(first) + (" ..." if len(category_ids) > MAX_LISTED else "")


def names_by_class(class_names: Sequence[str] | Mapping[int, str]) -> dict[int, str]:
    """Return the names of a detector's classes by their numbers."""
    names = class_names if isinstance(class_names, Mapping) else dict(enumerate(class_names))
    return {int(key): str(name).strip() for key, name in names.items()}


def category_ids_of_classes(names: Mapping[int, str]) -> dict[int, int]:
    """Return the category id of each class of a detector: COCO's if all names are COCO's, else the class number.

    Classes that are no categories, such as the background, have no id.

    >>> category_ids_of_classes({0: "person", 1: "N/A", 2: "couch"}), category_ids_of_classes({0: "dog", 1: "bolt"})
    ({0: 1, 2: 63}, {0: 0, 1: 1})
    """
    named = {label: name for label, name in names.items() if _plain(name) not in NOT_CATEGORIES}
    ids = ids_by_name(named)
    return ids if len(ids) == len(named) else {label: label for label in named}


def categories_of_classes(classes: Sequence[float], class_names: ClassNames) -> tuple[list[int], dict[int, str]]:
    """Return the category id of each class number, and the names of the categories.

    Numbers without names are refused: YOLO's class 16 is a dog, COCO's category 16 a bird.
    """
    if class_names is None and classes:
        raise InputError("Class numbers need names: pass class_names= (model.names, model.config.id2label)")
    names = names_by_class(class_names or {})
    ids = category_ids_of_classes(names)
    if unknown := set(classes).difference(ids):
        raise InputError(f"Class {min(unknown):g} has no name in class_names")
    return [ids[int(number)] for number in classes], {ids[number]: names[number] for number in ids}


def number_categories(names: Iterable[str], class_names: ClassNames = None) -> dict[int, str]:
    """Give ids to names that came without: the caller's, else COCO's if all are COCO's, else alphabetical ones."""
    if class_names is not None:
        return names_by_class(class_names)
    own = sorted(set(names))
    ids = [find_category(name) for name in own]
    if None not in ids:
        return {key: name for key, name in COCO_CATEGORIES.items() if key in ids}
    return dict(enumerate(own))


def match_categories(source: Mapping[int, str], target: Mapping[int, str]) -> dict[int, int]:
    """Return the target's id of each category of a source, matched by name.

    A category that the target does not have keeps its id, or gets a new one if the target uses that id. If the target
    has no names, ids stay as they are.
    """
    target = _named(target)
    if not target:
        return {category_id: category_id for category_id in source}
    ids = ids_by_name(source, target)
    by_target = {found: category_id for category_id, found in ids.items()}
    for category_id, found in ids.items():
        if (other := by_target[found]) != category_id:
            raise InputError(f"Categories {source[category_id]!r} and {source[other]!r} both match {target[found]!r}")
    taken = {*target, *ids.values()}
    for category_id in source:
        if category_id not in ids:
            ids[category_id] = category_id if category_id not in taken else max(*taken, *source) + 1
            taken.add(ids[category_id])
    return {category_id: ids[category_id] for category_id in source}


def check_common_names(
    source: Mapping[int, str], target: Mapping[int, str], owner: str, others: str = "the estimator's"
) -> None:
    """Raise if both sides have names and share none."""
    target = _named(target)
    if source and target and not ids_by_name(source, target):
        own, known = listed_names(source, source), listed_names(target, target)
        raise InputError(f"None of the categories of {owner} ({own}) is one of {others} ({known})")


def check_known_ids(category_ids: Iterable[int], target: Mapping[int, str], owner: str) -> None:
    """Raise if ids without names cannot be COCO's, as those of the target are: they are class numbers of a detector."""
    if target == COCO_CATEGORIES and (unknown := set(category_ids).difference(COCO_CATEGORIES)):
        remedy = "if they are class numbers of a detector, give its names with category_names= (--names data.yaml)"
        raise InputError(f"{owner}: category ids {sorted(unknown)[:MAX_LISTED]} are not COCO's; {remedy}")


def is_own(names: Mapping[int, str]) -> bool:
    """Return whether some of the categories are not COCO's."""
    return not names.items() <= COCO_CATEGORIES.items()


def plural(name: str) -> str:
    """Return a name with its last word in the plural.

    >>> plural("person"), plural("teddy bear"), plural("puppy"), plural("bench")
    ('people', 'teddy bears', 'puppies', 'benches')
    """
    before, space, word = name.rpartition(" ")
    if word in IRREGULAR_PLURALS:
        return before + space + IRREGULAR_PLURALS[word]
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{name}es"
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return f"{name[:-1]}ies"
    return f"{name}s"


def quantity(count: float, name: str) -> str:
    """Return a number of objects in words.

    >>> quantity(2, "person"), quantity(1, "bus"), quantity(0, "truck"), quantity(2.974, "cat"), quantity(2, "17")
    ('2 people', '1 bus', '0 trucks', '2.97 cats', '2 of category 17')
    """
    return named(f"{count:.2f}".rstrip("0").rstrip("."), name)


def named(number: str, name: str) -> str:
    """Return a number, already in words, with the name of what is counted."""
    if not name[-1:].isalpha():
        return f"{number} of category {name}"
    return f"{number} {name if number == '1' else plural(name)}"


def _named(categories: Mapping[int, str]) -> dict[int, str]:
    """Return the categories that have a name; an id as text is none."""
    return {category_id: name for category_id, name in categories.items() if name != str(category_id)}


def _plain(name: str) -> str:
    return name.strip().casefold()
