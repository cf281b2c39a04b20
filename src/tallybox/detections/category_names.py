"""The 80 categories of COCO. Their ids run from 1 to 90 with gaps, as in every COCO file."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from tallybox.errors import InputError

COCO_CATEGORIES: Mapping[int, str] = MappingProxyType(
    {
        1: "person",
        2: "bicycle",
        3: "car",
        4: "motorcycle",
        5: "airplane",
        6: "bus",
        7: "train",
        8: "truck",
        9: "boat",
        10: "traffic light",
        11: "fire hydrant",
        13: "stop sign",
        14: "parking meter",
        15: "bench",
        16: "bird",
        17: "cat",
        18: "dog",
        19: "horse",
        20: "sheep",
        21: "cow",
        22: "elephant",
        23: "bear",
        24: "zebra",
        25: "giraffe",
        27: "backpack",
        28: "umbrella",
        31: "handbag",
        32: "tie",
        33: "suitcase",
        34: "frisbee",
        35: "skis",
        36: "snowboard",
        37: "sports ball",
        38: "kite",
        39: "baseball bat",
        40: "baseball glove",
        41: "skateboard",
        42: "surfboard",
        43: "tennis racket",
        44: "bottle",
        46: "wine glass",
        47: "cup",
        48: "fork",
        49: "knife",
        50: "spoon",
        51: "bowl",
        52: "banana",
        53: "apple",
        54: "sandwich",
        55: "orange",
        56: "broccoli",
        57: "carrot",
        58: "hot dog",
        59: "pizza",
        60: "donut",
        61: "cake",
        62: "chair",
        63: "couch",
        64: "potted plant",
        65: "bed",
        67: "dining table",
        70: "toilet",
        72: "tv",
        73: "laptop",
        74: "mouse",
        75: "remote",
        76: "keyboard",
        77: "cell phone",
        78: "microwave",
        79: "oven",
        80: "toaster",
        81: "sink",
        82: "refrigerator",
        84: "book",
        85: "clock",
        86: "vase",
        87: "scissors",
        88: "teddy bear",
        89: "hair drier",
        90: "toothbrush",
    }
)

# The id of each class of a detector that numbers COCO's categories from 0 to 79, as YOLO does.
COCO_CATEGORY_IDS = tuple(COCO_CATEGORIES)


def category_id_of(name: str, categories: Mapping[int, str] = COCO_CATEGORIES) -> int:
    """Return the id of a category by its name.

    >>> category_id_of("dog")
    18
    """
    for category_id, known in categories.items():
        if known == name:
            return category_id
    similar = get_close_matches(name, categories.values(), n=1)
    hint = f"did you mean {similar[0]!r}?" if similar else "use its category id"
    raise InputError(f"category must be one of the {len(categories)} known names, but got {name!r}; {hint}")


def category_name_of(category_id: int, categories: Mapping[int, str] = COCO_CATEGORIES) -> str:
    """Return the name of a category, or its id as text where it has none.

    >>> category_name_of(18), category_name_of(12)
    ('dog', '12')
    """
    return categories.get(category_id, str(category_id))


def check_same_names(estimator: Mapping[int, str], given: Mapping[int, str], source: str) -> None:
    """Raise where an estimator knows categories by other names than what it is used with, the ``source``.

    Phrases in another order, say, or another model: counts would be given to the wrong names.

    >>> check_same_names({1: "person"}, {1: "apple"}, "apples.parquet")
    Traceback (most recent call last):
    tallybox.errors.InputError: the estimator must be fitted to the categories of apples.parquet, but category 1 is \
'person' in the estimator and 'apple' there; give the estimator of this detector with --estimator FILE
    """
    for category_id, name in given.items():
        learned = estimator.get(category_id, name)
        if learned.casefold() != name.casefold():
            raise InputError(
                f"the estimator must be fitted to the categories of {source}, but category {category_id} is "
                f"{learned!r} in the estimator and {name!r} there; give the estimator of this detector with "
                "--estimator FILE"
            )
