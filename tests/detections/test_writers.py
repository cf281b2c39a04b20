import pytest

from tallybox import Detections
from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.detections.readers import read_detections
from tallybox.detections.writers import write_detections
from tallybox.errors import InputError
from tests.support.detection_sets import assert_same_images

IMAGES = [
    Detections([[1, 2, 4, 6], [0, 0, 9.5, 9]], [0.75, 0.5], [18, 1], (640, 480), image_id=7),
    Detections.empty(9),
    Detections([[0, 0, 9, 9]], [0.25], [18], image_id=3),
]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.parquet"])
def test_detections_come_back_from_every_format(tmp_path, name):
    path = tmp_path / "new" / name
    write_detections(iter(IMAGES), path, categories=COCO_CATEGORIES)
    expected = IMAGES if name == "a.parquet" else [IMAGES[0], IMAGES[2]]  # COCO results have no empty images
    assert_same_images(list(read_detections(path)), expected)
    assert [file.name for file in path.parent.iterdir()] == [name]


def test_a_compressed_file_does_not_hold_the_time(tmp_path):
    write_detections(IMAGES, tmp_path / "a.json.gz", categories=COCO_CATEGORIES)
    assert (tmp_path / "a.json.gz").read_bytes()[4:8] == bytes(4)  # where gzip puts it


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.parquet"])
def test_what_fails_leaves_the_file_of_before(tmp_path, name):
    write_detections(IMAGES[:1], tmp_path / name, categories=COCO_CATEGORIES)
    before = (tmp_path / name).read_bytes()

    def interrupted():
        yield from IMAGES
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_detections(interrupted(), tmp_path / name, categories=COCO_CATEGORIES)
    with pytest.raises(InputError, match="image_id"):
        write_detections([*IMAGES, Detections.empty()], tmp_path / name, categories=COCO_CATEGORIES)
    assert (tmp_path / name).read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_json_cannot_hold_names_of_other_categories_and_no_other_file_detections(tmp_path):
    with pytest.raises(InputError, match=r"a\.txt"):
        write_detections(IMAGES, tmp_path / "a.txt", categories={})
    with pytest.raises(InputError, match="screw"):
        write_detections(IMAGES, tmp_path / "a.json", categories={1: "screw"})
