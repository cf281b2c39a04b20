"""Names of categories: COCO's 80, whose ids run from 1 to 90 with gaps, and how a name is found by other words."""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from tallybox.detections.category_words import SYNONYMS, entries, spellings
from tallybox.errors import InputError

# Names of categories with consecutive ids, by the first id.
_RUNS = {
    1: "person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant",
    13: "stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe",
    27: "backpack, umbrella",
    31: (
        "handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, "
        "skateboard, surfboard, tennis racket, bottle"
    ),
    46: (
        "wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, "
        "hot dog, pizza, donut, cake, chair, couch, potted plant, bed"
    ),
    67: "dining table",
    70: "toilet",
    72: "tv, laptop, mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator",
    84: "book, clock, vase, scissors, teddy bear, hair drier, toothbrush",
}
COCO_CATEGORIES: Mapping[int, str] = MappingProxyType(
    {first + index: name for first, run in _RUNS.items() for index, name in enumerate(run.split(", "))}
)

# The id of each class of a detector that numbers COCO's categories from 0 to 79, as YOLO does.
COCO_CATEGORY_IDS = tuple(COCO_CATEGORIES)
MAX_SHOWN = 200  # characters of a wrong name that an error quotes
MAX_LISTED = 3  # names that a message lists
LISTED = "'tallybox categories' lists them"
MIN_SIMILARITY = 0.8  # of names: "perzon" and "person" have 0.83, "bolt" has 0.75 with "bowl" and "boat"
_COCO_IDS = {name: category_id for category_id, name in COCO_CATEGORIES.items()}

# Names of classes that are no categories: gaps in COCO's numbering, and the background.
NOT_CATEGORIES = frozenset({"", "n/a", "background", "__background__"})

# Names that Darknet's list of COCO's categories took over from Pascal VOC.
VOC_NAMES = entries(
    "aeroplane: airplane; diningtable: dining table; motorbike: motorcycle; pottedplant: potted plant; sofa: couch; "
    "tvmonitor: tv"
)


def category_ids_of_classes(names: Mapping[int, str]) -> dict[int, int]:
    """Return the category id of each class of a detector: COCO's where all names are COCO's, else the class number.

    Classes that are no categories, such as the background, have no id.

    >>> category_ids_of_classes({0: "person", 1: "N/A", 2: "sofa"}), category_ids_of_classes({0: "dog", 1: "bolt"})
    ({0: 1, 2: 63}, {0: 0, 1: 1})
    """
    named = {label: name for label, name in names.items() if name.strip().lower() not in NOT_CATEGORIES}
    ids = {label: coco_id for label, name in named.items() if (coco_id := coco_id_of_class(name)) is not None}
    return ids if len(ids) == len(named) else {label: label for label in named}


def coco_id_of_class(name: str) -> int | None:
    """Return the id of the COCO category that a detector's class is named after, or None."""
    name = name.strip().lower()
    return _COCO_IDS.get(VOC_NAMES.get(name, name))


def category_id_of(name: str, categories: Mapping[int, str] = COCO_CATEGORIES, *, remedy: str = LISTED) -> int:
    """Return the id of a category by its name, also in another case, as a plural or by a common synonym.

    Where there is none, the error suggests a similar name; without one, it has the ``remedy``.
    """
    if (category_id := find_category(name, categories)) is not None:
        return category_id
    similar = _similar(name[:MAX_SHOWN], categories)
    hint = remedy if similar is None else f"did you mean {similar!r}?"
    raise InputError(f"category must be one of the {len(categories)} known names, but got {name[:MAX_SHOWN]!r}; {hint}")


def _similar(name: str, categories: Mapping[int, str]) -> str | None:
    """Return the category that a name with a slip or two stands for: the same letters in another order, or most."""
    names = {_plain(category): category for category in categories.values()}
    swapped = [plain for plain in names if sorted(plain) == sorted(_plain(name))]
    close = swapped or get_close_matches(_plain(name), names, n=1, cutoff=MIN_SIMILARITY)
    return names[close[0]] if close else None


def find_category(name: str, categories: Mapping[int, str] = COCO_CATEGORIES) -> int | None:
    """Return the id of a category by any word for it that means no other category, or None.

    A category's own name comes first, then the name in another case, plurals, synonyms with their plurals, and the name
    that Pascal VOC has for it.

    >>> find_category("phones", {1: "cell phone", 2: "phone"}), find_category("bolt", {1: "bowl"})
    (2, None)
    """
    for category_id, category in categories.items():
        if category == name:
            return category_id
    word = _plain(name)
    for words_for in (lambda category: (category,), spellings, _synonyms):
        if matches := [key for key, category in categories.items() if word in map(_plain, words_for(_plain(category)))]:
            return matches[0] if len(matches) == 1 else None
    return find_category(VOC_NAMES[word], categories) if word in VOC_NAMES else None


def _synonyms(name: str) -> tuple[str, ...]:
    return tuple(word for synonym in SYNONYMS.get(name, ()) for word in spellings(synonym))


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("_", " ").replace("-", " ").split())


def category_name_of(category_id: int, categories: Mapping[int, str] = COCO_CATEGORIES) -> str:
    """Return the name of a category, or its id as text where it has none."""
    return categories.get(category_id, str(category_id))


def listed_names(category_ids: Collection[int], categories: Mapping[int, str] = COCO_CATEGORIES) -> str:
    """Return the names of the first few categories, as messages list them.

    >>> listed_names([18, 1, 2, 3])
    'person, bicycle, car ...'
    """
    first = [category_name_of(category_id, categories) for category_id in sorted(category_ids)[:MAX_LISTED]]
    return ", ".join(first) + (" ..." if len(category_ids) > MAX_LISTED else "")


def check_same_names(estimator_names: Mapping[int, str], source_names: Mapping[int, str], source: str) -> None:
    """Raise where an estimator and the ``source`` of its detections give one category id different names.

    Counts would get wrong names, for example with phrases in another order or with another model.
    """
    for category_id, name in source_names.items():
        learned = estimator_names.get(category_id, name)
        if learned.casefold() != name.casefold():
            raise InputError(
                f"the estimator must be fitted to the categories of {source}, but category {category_id} is "
                f"{learned!r} in the estimator and {name!r} there; give the estimator of this detector with "
                "--estimator FILE"
            )


def check_known_ids(estimator_names: Mapping[int, str], category_ids: Iterable[int], source: str) -> None:
    """Raise where the ``source`` of detections, which names no categories, has ids that an estimator of COCO's has not.

    Such ids are class numbers of a detector: the others would count under wrong names, 16 as birds and not as dogs.
    """
    if estimator_names == COCO_CATEGORIES and (unknown := set(category_ids).difference(COCO_CATEGORIES)):
        raise InputError(
            f"{source}: category ids must be COCO's, like those of the estimator, but got {listed_names(unknown)}; "
            "class numbers of a YOLO model? give the names of the categories in a CSV's column category, or COCO's ids"
        )
