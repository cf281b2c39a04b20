import base64
import gzip

import numpy as np
import pytest

from tallybox.errors import InputError
from tallybox.vqa.data.store import read_tsv, write_tsv
from tests.support.vqa_feature_files import write_lxmert
from tests.support.vqa_files import assert_same_photos, small_photos


@pytest.mark.parametrize("name", ["features.tsv", "features.tsv.gz"])
def test_written_photos_are_read_again(tmp_path, name):
    write_tsv(tmp_path / "plain.tsv", small_photos(7))
    written = (tmp_path / "plain.tsv").read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(written) if name.endswith(".gz") else written)
    read: list[int] = []
    assert_same_photos(list(read_tsv(tmp_path / name, on_bytes=read.append)), small_photos(7))
    assert read[-1] == (tmp_path / name).stat().st_size


def test_lxmert_s_ten_columns_are_read(tmp_path):
    assert_same_photos(list(read_tsv(write_lxmert(tmp_path / "obj36.tsv", small_photos(5)))), small_photos(5))


def encoded(values: list[float]) -> str:
    return base64.b64encode(np.array(values, "<f4").tobytes()).decode()


def test_a_line_as_the_public_files_have_it(tmp_path):
    line = ["150367", "640", "480", "1", encoded([1, 2, 3, 4]), encoded([0.5, 0, 7])]
    (tmp_path / "one.tsv").write_text("\t".join(line) + "\r\n")
    (photo,) = read_tsv(tmp_path / "one.tsv")
    assert (photo.image_id, photo.size_wh) == ("150367", (640, 480))
    assert photo.boxes_xyxy.tolist() == [[1, 2, 3, 4]]
    assert photo.features.tolist() == [[0.5, 0, 7]]


def replaced(column: int, value: str):
    return lambda values: [value if place == column else old for place, old in enumerate(values)]


@pytest.mark.parametrize(
    ("change", "noun"),
    [
        (lambda values: values[:5], "columns"),
        (replaced(0, " "), "image_id"),
        (replaced(3, "0"), "num_boxes"),
        (replaced(3, "7"), "boxes"),
        (replaced(4, "@@@"), "base64"),
        (replaced(4, encoded([9, 9, 1, 1])), "x1 y1 x2 y2"),
        (replaced(5, encoded([float("nan")])), "features"),
        (replaced(5, encoded([1e5])), "half precision"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, change, noun):
    path = tmp_path / "features.tsv"
    right = ["1", "640", "480", "1", encoded([0, 0, 5, 5]), encoded([1, 2])]
    path.write_text("".join("\t".join(line) + "\n" for line in (right, change(right), right)))
    with pytest.raises(InputError, match=rf"features\.tsv, record 1: .*{noun}"):
        list(read_tsv(path))


def test_a_file_cut_short_is_named(tmp_path):
    write_tsv(tmp_path / "whole.tsv", small_photos(30))
    (tmp_path / "cut.tsv.gz").write_bytes(gzip.compress((tmp_path / "whole.tsv").read_bytes())[:-40])
    with pytest.raises(InputError, match=r"cut\.tsv\.gz"):
        list(read_tsv(tmp_path / "cut.tsv.gz"))
