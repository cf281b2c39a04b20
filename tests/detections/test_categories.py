import pytest

from tallybox.detections.categories import (
    COCO_CATEGORIES,
    category_id_of,
    check_known_ids,
    find_category,
    match_categories,
)
from tallybox.errors import InputError, did_you_mean


def test_the_categories_are_those_of_coco():
    assert len(COCO_CATEGORIES) == 80
    assert (min(COCO_CATEGORIES), max(COCO_CATEGORIES), category_id_of("toothbrush")) == (1, 90, 90)


def test_names_are_exact_but_for_case():
    assert find_category(" Dog ") == 18
    assert find_category("dogs") is None
    assert find_category("nut", {0: "Nut", 1: "nut"}) == 1
    assert find_category("NUT", {0: "Nut", 1: "nut"}) is None, "two names fit"


def test_an_unknown_name_is_an_error_with_one_suggestion():
    with pytest.raises(InputError, match=r"perzon.*'person'"):
        category_id_of("perzon")
    with pytest.raises(InputError, match="bolt"):
        category_id_of("bolt" * 10_000)
    assert did_you_mean("bolt", ["bowl", "boat"]) == ""


@pytest.mark.parametrize(
    ("source", "target", "ids"),
    [
        ({0: "nut", 1: "bolt"}, {0: "bolt", 1: "nut"}, {0: 1, 1: 0}),
        ({0: "nut", 1: "gear"}, {0: "bolt", 1: "Nut"}, {0: 1, 1: 2}),
        ({5: "gear", 1: "bolt"}, {0: "bolt", 7: "nut"}, {5: 5, 1: 0}),
        ({0: "nut"}, {}, {0: 0}),
        ({0: "nut"}, {0: "0", 1: "1"}, {0: 0}),
    ],
    ids=["other order", "an unknown name on a used id", "an unknown name on a free id", "no names", "ids as names"],
)
def test_categories_are_matched_by_name(source, target, ids):
    assert match_categories(source, target) == ids


def test_two_names_for_one_category_are_an_error():
    with pytest.raises(InputError, match="Bolt"):
        match_categories({0: "bolt", 1: "Bolt"}, {4: "BOLT"})


def test_class_numbers_are_not_taken_for_ids_of_coco():
    check_known_ids([0, 12], {0: "bolt"}, "a file")
    check_known_ids([1, 90], COCO_CATEGORIES, "a file")
    with pytest.raises(InputError, match=r"a file.*\[0, 12\].*--names"):
        check_known_ids([0, 12, 18], COCO_CATEGORIES, "a file")
