import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from tallybox import Detections
from tallybox.detections import parquet
from tallybox.detections.parquet import (
    parquet_pieces,
    read_parquet,
    read_parquet_categories,
    read_parquet_piece,
    write_parquet,
)
from tallybox.errors import InputError
from tests.support.detection_sets import assert_same_images, image_sets


def table(image_ids, **changes) -> pa.Table:
    number = len(image_ids)
    columns = {"image_id": image_ids, "category_id": [18] * number, "x1": [0.0] * number, "y1": [0.0] * number}
    columns |= {"x2": [9.0] * number, "y2": [9.0] * number, "score": [0.5] * number}
    return pa.table({name: values for name, values in {**columns, **changes}.items() if values is not None})


@given(image_sets())
def test_detections_come_back_as_they_were(tmp_path_factory, images):
    path = tmp_path_factory.mktemp("parquet") / "detections.parquet"
    assert write_parquet(images, path) == len(images)
    read = list(read_parquet(path))
    assert_same_images(read, images)
    assert [image.image_size for image in read] == [image.image_size for image in images]


@pytest.mark.parametrize("rows_in_group", [1, 7, 1000])
def test_an_image_may_go_on_over_batches_and_row_groups(tmp_path, monkeypatch, rows_in_group):
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 5)
    ids = np.repeat(np.arange(20), np.arange(20) % 7 + 1)
    pq.write_table(table(ids, score=np.arange(len(ids)) / 100), tmp_path / "a.parquet", row_group_size=rows_in_group)
    images = list(read_parquet(tmp_path / "a.parquet"))
    assert [(image.image_id, len(image)) for image in images] == [(i, i % 7 + 1) for i in range(20)]
    np.testing.assert_array_equal(
        np.concatenate([image.scores for image in images]), (np.arange(len(ids)) / 100).astype(np.float32)
    )


@pytest.mark.parametrize("rows_in_group", [1, 3, 10, 1000])
@pytest.mark.parametrize("texts", [False, True])
def test_pieces_hold_every_image_once_wherever_row_groups_end(tmp_path, monkeypatch, rows_in_group, texts):
    for name, rows in (("ROWS_PER_GROUP", 9), ("ROWS_AT_ONCE", 5)):
        monkeypatch.setattr(parquet, name, rows)
    for number, file in enumerate("ab"):
        ids = np.repeat(np.arange(20), [1, 2, 30, 1, 5] * 4) + 20 * number  # one image is longer than a piece
        scores = np.arange(len(ids)) / 1000
        named = [f"{i:03}" for i in ids] if texts else ids
        pq.write_table(table(named, score=scores), tmp_path / f"{file}.parquet", row_group_size=rows_in_group)
    pieces = parquet_pieces(tmp_path)
    assert len(pieces) > 2 or rows_in_group == 1000
    images = [image for piece in pieces for image in read_parquet_piece(piece)]
    assert_same_images(images, list(read_parquet(tmp_path)))
    assert len(images) == 40


@pytest.mark.parametrize("rows_in_group", [2000, 10**9], ids=["small-row-groups", "one-row-group"])
def test_reading_holds_a_small_part_of_a_file(tmp_path, monkeypatch, rows_in_group):
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 1000)
    monkeypatch.setattr(parquet, "BUFFER_BYTES", 10_000)
    path, rows = tmp_path / "a.parquet", 200_000
    scores = np.random.default_rng(0).random((5, rows), np.float32)
    columns = {"x1": scores[0], "x2": scores[1] + 1, "y1": scores[2], "y2": scores[3] + 1, "score": scores[4]}
    written = table(np.arange(rows) // 20, **columns)
    pq.write_table(written, path, row_group_size=rows_in_group, data_page_size=1 << 16, use_dictionary=False)
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for _ in read_parquet(path))
    assert most < path.stat().st_size / 4


def test_row_groups_are_written_while_images_come(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 10)
    images = [Detections([[0, 0, 1, 1]] * 4, [0.5] * 4, [1] * 4, image_id=i) for i in range(10)]
    write_parquet(iter(images), tmp_path / "a.parquet")
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 4
    assert_same_images(list(read_parquet(tmp_path / "a.parquet")), images)


@pytest.mark.parametrize("ids", [[7, 7, 9, 7], [7, 9, 8, 9], ["a", "b", "a"]])
def test_an_image_that_comes_back_is_an_error(tmp_path, ids):
    pq.write_table(table(ids), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=f"must stand together, but image {ids[-1]!r} comes back after others; sort"):
        list(read_parquet(tmp_path / "a.parquet"))


def test_images_need_no_order(tmp_path):
    pq.write_table(table([9, 9, 3, 10, 1]), tmp_path / "a.parquet")
    assert [image.image_id for image in read_parquet(tmp_path / "a.parquet")] == [9, 3, 10, 1]


def test_a_folder_of_files_is_one_data_set(tmp_path):
    for name, ids in (("b", [3, 4]), ("a", [1, 1, 2])):
        pq.write_table(table(ids), tmp_path / f"{name}.parquet")
    assert [image.image_id for image in read_parquet(tmp_path)] == [1, 2, 3, 4]
    pq.write_table(table([2]), tmp_path / "c.parquet")
    with pytest.raises(InputError, match=r"c\.parquet: .* image 2 comes back"):
        list(read_parquet(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"must hold \.parquet files, but there is none"):
        list(read_parquet(tmp_path / "empty"))


def test_columns_of_other_widths_and_dictionaries_are_taken(tmp_path):
    ids = pa.array(["a.jpg", "a.jpg", "7"]).dictionary_encode()
    given_columns = table(ids, category_id=pa.array([1, 2, 3], pa.uint8()), other=["x", "y", "z"])
    pq.write_table(given_columns, tmp_path / "a.parquet")
    assert [(i.image_id, i.category_ids.tolist()) for i in read_parquet(tmp_path / "a.parquet")] == [
        ("a.jpg", [1, 2]),
        (7, [3]),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": [0.5, 0.5, float("nan")]}, r"record 2: scores must be in \[0, 1\], but got nan"),
        ({"score": [0.5, 3.5, 0.5]}, "record 1: scores must be .* got 3.5; apply a logistic if these are logits"),
        ({"x1": [0.0, 0.0, 99.0]}, "record 2: boxes must be corners"),
        ({"x1": [0.0, None, 1.0]}, "record 1: x1 must be given, except for an image without detections"),
        ({"category_id": [1, None, 1]}, "record 1: x1 must be given"),
        ({"image_id": [1, None, 2]}, "record 1: image_id must be given"),
        ({"score": None}, "must have a column score, but it has only"),
        ({"category_id": ["dog"] * 3}, "category_id must be int64, but got string"),
        ({"x2": [9.0, 9.0, -1.0]}, "record 2: boxes must be corners"),
        (
            {"width": [640, -640, 640], "height": [480] * 3},
            "record 1: width and height must be whole numbers from 1 to 2147483647, but got -640 and 480",
        ),
        ({"width": [640, None, 640], "height": [480] * 3}, "record 1: width and height must be .* got 0 and 480"),
        ({"width": [640] * 3}, "record 0: width and height must be .* but got 640 and 0"),
        (
            {"width": [640, 320, 640], "height": [480] * 3},
            r"image 7 must have one size, but got \(640, 480\) and \(320,",
        ),
        (
            {"width": [640, 480, 640], "height": [480, 640, 480]},
            r"must have one size, .* \(640, 480\) and \(480, 640\)",
        ),
    ],
)
def test_wrong_rows_are_named_with_file_and_record(tmp_path, changes, message):
    path = tmp_path / "a.parquet"
    pq.write_table(table([7, 7, 9], **changes), path)
    with pytest.raises(InputError, match=message) as raised:
        list(read_parquet(path))
    assert str(path) in str(raised.value)


def test_a_file_that_is_damaged_empty_or_absent_is_an_error(tmp_path):
    path = tmp_path / "a.parquet"
    with pytest.raises(InputError, match="there is none"):
        list(read_parquet(path))
    path.write_bytes(b"")
    with pytest.raises(InputError, match="it is empty"):
        list(read_parquet(path))
    pq.write_table(table([7] * 1000, score=np.random.default_rng(0).random(1000)), path)
    whole = path.read_bytes()
    for damaged in (whole[:-20], bytes(4) + whole[: len(whole) // 2], whole[:100] + bytes(1500) + whole[1600:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"a\.parquet"):
            list(read_parquet(path))


@pytest.mark.parametrize("rows_at_once", [1, 2, 100])
def test_a_size_may_stand_in_some_rows_of_an_image(tmp_path, monkeypatch, rows_at_once):
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", rows_at_once)
    sides = {"width": [None, 640, None, 320, None], "height": [None, 480, None, 240, None]}
    pq.write_table(table([7, 7, 7, 9, 10], **sides), tmp_path / "a.parquet")
    assert [image.image_size for image in read_parquet(tmp_path / "a.parquet")] == [(640, 480), (320, 240), None]
    sides["width"][2], sides["height"][2] = 641, 480
    pq.write_table(table([7, 7, 7, 9, 10], **sides), tmp_path / "a.parquet")
    with pytest.raises(
        InputError, match=r"a\.parquet: image 7 must have one size, but got \(640, 480\) and \(641, 480\)"
    ):
        list(read_parquet(tmp_path / "a.parquet"))


def test_a_changed_byte_in_a_page_is_an_error(tmp_path):
    path, scores = tmp_path / "a.parquet", np.random.default_rng(0).random(1000, np.float32)
    write_parquet([Detections([[0, 0, 9, 9]] * 1000, scores, [18] * 1000, image_id=7)], path)
    content = bytearray(path.read_bytes())
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(6)  # the scores, in a dictionary page as they differ
    content[chunk.dictionary_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.parquet must be a whole Parquet file, but it is damaged: .*CRC"):
        list(read_parquet(path))


def test_the_same_detections_give_the_same_bytes_with_the_usual_permissions(tmp_path):
    (tmp_path / "any").touch()
    for name in ("a.parquet", "b.parquet"):
        write_parquet([Detections([[0, 0, 9, 9]], [0.5], [18], image_id=7)], tmp_path / name, categories={18: "dog"})
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert (tmp_path / "a.parquet").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_names_of_categories_travel_with_the_file(tmp_path):
    write_parquet([Detections.empty(1)], tmp_path / "a.parquet", categories={np.int64(3): "screw"})
    assert read_parquet_categories(tmp_path / "a.parquet") == {3: "screw"}
    write_parquet([Detections.empty(1)], tmp_path / "b.parquet")
    assert read_parquet_categories(tmp_path / "b.parquet") == {}


def test_what_cannot_be_written_leaves_no_file_behind(tmp_path):
    for images, message in (
        ([Detections.empty()], "must have an image_id to be written"),
        ([Detections.empty(2**63)], "image ids must be all texts or all numbers of 64 bits"),
        ([Detections.empty(1), Detections.empty("a")], "image ids must be all texts or all numbers"),
    ):
        with pytest.raises(InputError, match=message):
            write_parquet(images, tmp_path / "a.parquet")
        assert list(tmp_path.iterdir()) == []


def test_a_flipped_bit_in_a_page_is_found_by_its_checksum(tmp_path):
    path = tmp_path / "found.parquet"
    boxes = np.random.default_rng(0).random((500, 2)).astype(np.float32)
    image = Detections(np.concatenate((boxes, boxes + 1), 1), [0.5] * 500, [1] * 500, (2, 2), image_id=7)
    write_parquet([image], path)
    assert len(next(read_parquet(path))) == 500
    content = bytearray(path.read_bytes())
    place = content.index(boxes[100:101, 0].tobytes())  # in the middle of x1, stored as it is
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"found\.parquet .*CRC"):
        list(read_parquet(path))
