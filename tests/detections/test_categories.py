import pytest

from tallybox.detections.categories import (
    COCO_CATEGORIES,
    category_id_of,
    category_ids_of_classes,
    check_common_names,
    check_known_ids,
    find_category,
    match_categories,
    number_categories,
    plural,
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


def test_cocos_names_get_cocos_ids_and_others_their_own():
    assert category_ids_of_classes({0: "person", 1: "N/A", 2: "Couch"}) == {0: 1, 2: 63}
    assert category_ids_of_classes({0: "dog", 1: "bolt"}) == {0: 0, 1: 1}
    assert number_categories(["nut", "bolt", "nut"]) == {0: "bolt", 1: "nut"}
    assert number_categories([]) == {}


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


def test_names_without_any_in_common_are_an_error():
    check_common_names({0: "nut"}, {4: "Nut", 5: "bolt"}, "a file")
    check_common_names({0: "nut"}, {4: "4"}, "a file")
    with pytest.raises(InputError, match=r"a file.*nut.*person"):
        check_common_names({0: "nut"}, COCO_CATEGORIES, "a file")


def test_class_numbers_are_not_taken_for_ids_of_coco():
    check_known_ids([0, 12], {0: "bolt"}, "a file")
    check_known_ids([1, 90], COCO_CATEGORIES, "a file")
    with pytest.raises(InputError, match=r"a file.*\[0, 12\].*--names"):
        check_known_ids([0, 12, 18], COCO_CATEGORIES, "a file")


def test_plurals_of_names():
    plurals = {"person": "people", "sheep": "sheep", "bus": "buses", "wine glass": "wine glasses", "toy": "toys"}
    assert {name: plural(name) for name in plurals} == plurals
