import numpy as np
import pytest
from research.inventory import ask_about_inventory, category_prototypes, photos_of_inventory, read_inventory

from tallybox.errors import InputError
from tallybox.vqa.data.questions import read_records
from tallybox.vqa.simulation.instances import noun
from tallybox.vqa.simulation.world import World, prototypes
from tests.support.shared_data import data_folder

WORLD = World(difficulty=0.2)


def written(tmp_path, lines: str):
    (tmp_path / "inventory.csv").write_text(f"image_id,category_id,count\n{lines}")
    return tmp_path / "inventory.csv"


def photos_of(tmp_path, lines: str, image_ids=(7, 8, 9)):
    inventory = read_inventory(written(tmp_path, lines))
    return {int(photo.image_id): photo for photo in photos_of_inventory(image_ids, inventory, WORLD)}


def test_a_photo_shows_what_the_inventory_says(tmp_path):
    photos = photos_of(tmp_path, "7,18,3\n7,1,1\n8,1,40\n")
    directions = category_prototypes(WORLD, [1, 18])
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
    one = photos_of(tmp_path, "7,18,3\n")[7]
    alone = photos_of(tmp_path, "7,18,3\n", image_ids=(7,))[7]
    np.testing.assert_array_equal(one.features, alone.features)


def test_categories_leave_the_directions_of_the_world_as_they_are():
    directions = category_prototypes(WORLD, [1, 18])
    for name, direction in prototypes(WORLD).items():
        np.testing.assert_array_equal(directions[name], direction)


def test_real_inventory():
    counts = read_inventory(data_folder("vqa2-subset") / "object_inventory.csv.gz")
    assert counts[71][3] == 13
    assert len(counts) > 20000


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("7,dog,3\n", r"inventory\.csv, record 0: must be whole numbers"),
        ("7,18,3\n7,1,-1\n", r"inventory\.csv, record 1: count must be at least 0, but got -1"),
    ],
)
def test_wrong_inventories(tmp_path, lines, message):
    with pytest.raises(InputError, match=message):
        read_inventory(written(tmp_path, lines))


def test_a_file_without_the_columns(tmp_path):
    (tmp_path / "other.csv").write_text("image,category\n1,2\n")
    with pytest.raises(InputError, match="must have the columns image_id, category_id, count, but image_id is missing"):
        read_inventory(tmp_path / "other.csv")


def test_questions_are_written_about_what_the_inventory_says(tmp_path):
    inventory = read_inventory(written(tmp_path, "7,18,3\n7,1,1\n8,18,40\n11,18,5\n"))
    number = ask_about_inventory([7, 8, 9], inventory, tmp_path, questions_per_photo=30)
    truth = {"dog": {7: 3, 8: 40, 9: 0}, "person": {7: 1, 8: 0, 9: 0}}
    records = read_records(*(next(tmp_path.glob(f"v2_*{role}.json.gz")) for role in ("questions", "annotations")))
    assert len(records) == number
    counted = set()
    for record in records:
        for name, counts in truth.items():
            words = record.text.rstrip("?").lower().split()
            if record.answer_type == "number" and noun(name).plural in words:
                counted.add((name, int(record.image_id)))
                assert record.answers == (str(counts[int(record.image_id)]),) * 10
    assert {("dog", 7), ("dog", 8), ("person", 7)} <= counted  # zeros are asked rarely
