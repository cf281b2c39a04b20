import base64

import numpy as np
import pytest

from tallybox.errors import InputError
from tallybox.vqa.data.features import PhotoFeatures, read_tsv, write_tsv
from tests.support.vqa_files import small_photos


def assert_same(one, other):
    assert (one.image_id, one.size_wh) == (other.image_id, other.size_wh)
    np.testing.assert_array_equal(one.boxes_xyxy, other.boxes_xyxy)
    np.testing.assert_array_equal(one.features, other.features)


@pytest.mark.parametrize("name", ["features.tsv", "features.tsv.gz"])
def test_what_is_written_is_read(tmp_path, name):
    photos = small_photos(7)
    write_tsv(tmp_path / name, photos)
    found = list(read_tsv(tmp_path / name))
    assert len(found) == 7
    for photo, (read, _) in zip(photos, found, strict=True):
        assert_same(photo, read)
    for number, (_, place) in enumerate(found):
        rest = [photo for photo, _ in read_tsv(tmp_path / name, place)]
        assert [photo.image_id for photo in rest] == [photo.image_id for photo in photos[number + 1 :]]


def test_same_photos_give_the_same_file(tmp_path):
    for name in ("a.tsv.gz", "b.tsv.gz"):
        write_tsv(tmp_path / name, small_photos(3))
    assert (tmp_path / "a.tsv.gz").read_bytes() == (tmp_path / "b.tsv.gz").read_bytes()


def test_a_line_as_the_public_files_have_it(tmp_path):
    boxes, features = np.array([[1, 2, 3, 4]], "<f4"), np.array([[0.5, 0, 7]], "<f4")
    encoded = [base64.b64encode(array.tobytes()).decode() for array in (boxes, features)]
    (tmp_path / "one.tsv").write_text("\t".join(["150367", "640", "480", "1", *encoded]) + "\r\n")
    ((photo, _),) = read_tsv(tmp_path / "one.tsv")
    assert (photo.image_id, photo.size_wh) == ("150367", (640, 480))
    assert photo.boxes_xyxy.tolist() == [[1, 2, 3, 4]]
    assert photo.features.tolist() == [[0.5, 0, 7]]


def replaced(column: int, value: str):
    def change(values: list[str]) -> list[str]:
        return [value if place == column else old for place, old in enumerate(values)]

    return change


def encoded(values: list[float]) -> str:
    return base64.b64encode(np.array(values, "<f4").tobytes()).decode()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda values: values[:5], "must have the 6 columns .* or LXMERT's 10, but got 5"),
        (replaced(0, " "), "image_id must be a number or a name, but it is empty"),
        (replaced(3, "0"), "num_boxes must be at least 1, but got 0"),
        (replaced(3, "7"), "boxes must be float32 numbers, equally many for each of 7"),
        (replaced(4, "@@@"), "boxes must be base64"),
        (replaced(4, encoded([9, 9, 1, 1])), r"boxes must be x1 y1 x2 y2 .* but got \[9.0, 9.0, 1.0, 1.0\]"),
        (replaced(4, encoded([1, 2, 3])), "boxes must be 4 numbers for each of at least one, but got \\[1, 3\\]"),
        (replaced(5, encoded([float("nan")])), "features must be finite"),
        (replaced(5, ""), "features must be some numbers"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, change, reason):
    path = tmp_path / "features.tsv"
    right = ["1", "640", "480", "1", encoded([0, 0, 5, 5]), encoded([1, 2])]
    path.write_text("\t".join(right) + "\n" + "\t".join(change(right)) + "\n")
    with pytest.raises(InputError, match=f"features.tsv, record 1: {reason}"):
        list(read_tsv(path))


def test_a_file_cut_short_is_named(tmp_path):
    write_tsv(tmp_path / "whole.tsv.gz", small_photos(30))
    (tmp_path / "cut.tsv.gz").write_bytes((tmp_path / "whole.tsv.gz").read_bytes()[:-40])
    with pytest.raises(InputError, match=r"cut\.tsv\.gz must be a whole gzip file"):
        list(read_tsv(tmp_path / "cut.tsv.gz"))


RANDOM = np.random.default_rng(0)
KINDS = {
    "pooled": np.maximum(RANDOM.normal(-0.5, 1, (10, 512)), 0),
    "states": RANDOM.normal(0, 0.3, (10, 512)),
    "sigmoid": 1 / (1 + np.exp(-RANDOM.normal(-5, 3, (10, 512)))),
    "softmax": np.exp(RANDOM.normal(-40, 8, (10, 512))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_not_taken_for_single(tmp_path, kind):
    values = KINDS[kind].astype("<f4")
    rounded = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)  # to bfloat16
    boxes = np.tile(np.array([0, 0, 9, 9], np.float32), (10, 1))
    for single in (values, rounded, values.astype("f2").astype("f4")):
        write_tsv(tmp_path / "single.tsv", [PhotoFeatures("1", (640, 480), boxes, single)])
        ((photo, _),) = read_tsv(tmp_path / "single.tsv")
        np.testing.assert_array_equal(photo.features, single)
    if kind != "softmax":  # hardly any of these are above 0 in half precision
        half = values.astype("<f2").view("<f4")
        write_tsv(tmp_path / "half.tsv", [PhotoFeatures("1", (640, 480), boxes, half)] * 2)
        with pytest.raises(
            InputError, match=r"record 0: features must be float32, but 256 .* look like 512 of float16"
        ):
            list(read_tsv(tmp_path / "half.tsv", None, lambda error: None))
