from __future__ import annotations

import pytest

from tallybox.detections.category_names import COCO_CATEGORIES, category_id_of, find_category
from tallybox.errors import InputError


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("people", "person"),
        ("persons", "person"),
        ("Person", "person"),
        ("cars", "car"),
        ("TV", "tv"),
        ("TVs", "tv"),
        ("televisions", "tv"),
        ("sofa", "couch"),
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
