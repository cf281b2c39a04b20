from __future__ import annotations

import numpy as np
import pytest

from tallybox.errors import InputError
from tallybox.vqa.data.features import read_tsv
from tallybox.vqa.simulation.simulate import read_inventory, simulate_from_inventory
from tallybox.vqa.simulation.world import World, prototypes
from tests.support.shared_data import data_folder
from tests.support.vqa_files import question, questions_file

WORLD = World(difficulty=0.2)


def photos_of(tmp_path, inventory: str, image_ids=(7, 8, 9), name: str = "out"):
    asked = questions_file(tmp_path / "questions.json", [question(n, image) for n, image in enumerate(image_ids)])
    (tmp_path / "inventory.csv").write_text(f"image_id,category_id,count\n{inventory}")
    simulate_from_inventory([asked], tmp_path / "inventory.csv", tmp_path / name, WORLD)
    return {int(photo.image_id): photo for photo, _ in read_tsv(tmp_path / name / "features.tsv")}


def test_a_photo_shows_what_the_inventory_says(tmp_path):
    photos = photos_of(tmp_path, "7,18,3\n7,1,1\n8,1,40\n")
    directions = prototypes(WORLD, ["category 1", "category 18"])
    looks = {
        (image, category): (photos[image].features @ directions[f"category {category}"] > 0.6).sum()
        for image in (7, 8, 9)
        for category in (1, 18)
    }
    assert looks[7, 18] >= 3
    assert looks[7, 1] >= 1
    assert looks[8, 1] >= 35
    assert looks[8, 18] == looks[9, 1] == looks[9, 18] == 0
    assert all(10 <= len(photo.boxes_xyxy) <= 100 for photo in photos.values())


def test_a_photo_looks_the_same_among_others(tmp_path):
    one = photos_of(tmp_path, "7,18,3\n", name="one")[7]
    alone = photos_of(tmp_path, "7,18,3\n", image_ids=(7,), name="alone")[7]
    np.testing.assert_array_equal(one.features, alone.features)


def test_real_inventory():
    counts = read_inventory(data_folder("vqa2-subset") / "object_inventory.csv.gz")
    assert counts[71] == {3: 13, **{category: count for category, count in counts[71].items() if category != 3}}
    assert len(counts) > 20000


@pytest.mark.parametrize(
    ("inventory", "message"),
    [
        ("7,dog,3\n", r"inventory\.csv, record 0: must be whole numbers"),
        ("7,18,3\n7,1,-1\n", r"inventory\.csv, record 1: count must be at least 0, but got -1"),
        ("70,18,3\n", r"must be about the photos of the questions, but names none of 3"),
    ],
)
def test_wrong_inventories(tmp_path, inventory, message):
    with pytest.raises(InputError, match=message):
        photos_of(tmp_path, inventory)


def test_a_file_without_the_columns(tmp_path):
    (tmp_path / "other.csv").write_text("image,category\n1,2\n")
    with pytest.raises(InputError, match="must have the columns image_id, category_id, count, but image_id is missing"):
        read_inventory(tmp_path / "other.csv")
