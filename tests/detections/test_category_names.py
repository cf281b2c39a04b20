import pytest

from tallybox.detections.category_names import (
    COCO_CATEGORIES,
    category_id_of,
    category_name_of,
    check_same_names,
    coco_id_of_class,
    find_category,
)
from tallybox.detections.category_words import spellings
from tallybox.errors import InputError


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("dog", "dog"),
        ("People", "person"),
        ("people", "person"),
        ("persons", "person"),
        ("Person", "person"),
        ("cars", "car"),
        ("TV", "tv"),
        ("TVs", "tv"),
        ("televisions", "tv"),
        ("sofas", "couch"),
        ("cell_phone", "cell phone"),
        ("knives", "knife"),
        ("ski", "skis"),
        ("Hot-Dogs", "hot dog"),
    ],
)
def test_other_words_for_cocos_categories(word, name):
    assert COCO_CATEGORIES[category_id_of(word)] == name


def test_every_name_is_its_own_category_whatever_its_case():
    for category_id, name in COCO_CATEGORIES.items():
        assert category_id_of(name) == category_id_of(name.upper()) == category_id


def test_a_word_for_two_categories_is_neither():
    assert find_category("Bolts", {1: "bolt", 2: "BOLT"}) is None
    assert find_category("BOLT", {1: "bolt", 2: "BOLT"}) == 2
    with pytest.raises(InputError, match=r"one of the 2 known names, but got 'gear'; 'tallybox categories' lists them"):
        category_id_of("gear", {1: "bolt", 2: "nut"})


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("preson", "person"),  # codespell:ignore
        ("Perzon", "person"),
        ("dgo", "dog"),
        ("bycicle", "bicycle"),  # codespell:ignore
        ("tennis raquet", "tennis racket"),
    ],
)
def test_a_slip_is_answered_with_the_name_that_was_meant(word, name):
    with pytest.raises(InputError, match=f"but got '{word}'; did you mean '{name}'"):
        category_id_of(word)


@pytest.mark.parametrize("word", ["bolt", "nut", "gear", "counts", "number"])
def test_another_word_is_not_taken_for_a_slip(word):
    with pytest.raises(InputError, match=f"but got '{word}'; 'tallybox categories' lists them"):
        category_id_of(word)


def test_names_of_classes_and_of_ids():
    assert (coco_id_of_class("tvmonitor"), coco_id_of_class("bolt")) == (72, None)
    assert (category_name_of(18), category_name_of(12)) == ("dog", "12")
    assert spellings("person") == ("person", "people", "persons")


def test_an_estimator_that_names_a_category_differently_is_refused():
    check_same_names({1: "Person"}, {1: "person", 2: "apple"}, "apples.parquet")
    with pytest.raises(InputError) as caught:
        check_same_names({1: "person"}, {1: "apple"}, "apples.parquet")
    assert str(caught.value) == (
        "the estimator must be fitted to the categories of apples.parquet, but category 1 is 'person' in the estimator "
        "and 'apple' there; give the estimator of this detector with --estimator FILE"
    )
