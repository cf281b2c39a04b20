"""Detections in Parquet, which are read image by image."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from tallybox import Detections, read_detections
from tallybox.detections.writers import write_parquet
from tallybox.errors import InputError
from tests.support.detection_sets import assert_same_images, image_sets


def table(image_ids, **changes) -> pa.Table:
    number = len(image_ids)
    columns = {"image_id": image_ids, "category_id": [18] * number, "x1": [0.0] * number, "y1": [0.0] * number}
    columns |= {"x2": [9.0] * number, "y2": [9.0] * number, "score": [0.5] * number}
    return pa.table({name: values for name, values in {**columns, **changes}.items() if values is not None})


def read(folder, image_ids, **changes):
    pq.write_table(table(image_ids, **changes), folder / "a.parquet")
    return list(read_detections(folder / "a.parquet"))


@given(image_sets())
def test_detections_come_back_as_they_were(tmp_path_factory, images):
    path = tmp_path_factory.mktemp("parquet") / "detections.parquet"
    write_parquet(images, path)
    found = list(read_detections(path))
    assert_same_images(found, images)
    assert [image.image_size for image in found] == [image.image_size for image in images]


def test_rows_of_an_image_may_be_anywhere(tmp_path):
    assert [(image.image_id, len(image)) for image in read(tmp_path, [7, 7, 9, 7])] == [(7, 3), (9, 1)]


def test_columns_of_other_types_and_names_are_taken(tmp_path):
    ids = pa.array(["a.jpg", "a.jpg", "7"]).dictionary_encode()
    images = read(tmp_path, ids, category_id=pa.array([1, 2, 3], pa.uint8()), other=["x", "y", "z"])
    assert [(image.image_id, image.category_ids.tolist()) for image in images] == [("a.jpg", [1, 2]), (7, [3])]
    images = read(tmp_path, [1, 2, 3], category_id=None, category=["nut", "bolt", "nut"], score=None, conf=[0.5] * 3)
    assert [image.category_ids.tolist() for image in images] == [[1], [0], [1]]
    assert images[0].category_names == {0: "bolt", 1: "nut"}
    assert images[0].category_names is images[2].category_names


def test_a_size_may_stand_in_some_rows_of_an_image(tmp_path):
    sides = {"width": [None, 640, None, 320, None], "height": [None, 480, None, 240, None]}
    images = read(tmp_path, [7, 7, 7, 9, 10], **sides)
    assert [image.image_size for image in images] == [(640, 480), (320, 240), None]


def test_a_flipped_bit_in_a_page_is_found_by_its_checksum(tmp_path):
    path = tmp_path / "found.parquet"
    boxes = np.random.default_rng(0).random((500, 2)).astype(np.float32)
    image = Detections(np.concatenate((boxes, boxes + 1), 1), [0.5] * 500, [1] * 500, (2, 2), image_id=7)
    write_parquet([image], path)
    assert len(next(read_detections(path))) == 500
    content = bytearray(path.read_bytes())
    place = content.index(boxes[100:101, 0].tobytes())  # in the middle of x1, stored as it is
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"found\.parquet.*CRC"):
        list(read_detections(path))


def test_names_of_categories_travel_with_the_file(tmp_path):
    write_parquet([Detections.empty(1)], tmp_path / "a.parquet", categories={np.int64(3): "screw"})
    assert next(read_detections(tmp_path / "a.parquet")).category_names == {3: "screw"}
    write_parquet([Detections.empty(1)], tmp_path / "b.parquet")
    assert next(read_detections(tmp_path / "b.parquet")).category_names is None


def test_detections_that_cannot_be_written_leave_no_file_behind(tmp_path):
    for images in ([Detections.empty()], [Detections.empty(2**63)], [Detections.empty(1), Detections.empty("a")]):
        with pytest.raises(InputError, match=r"(?i)image"):
            write_parquet(images, tmp_path / "a.parquet")
        assert list(tmp_path.iterdir()) == []
