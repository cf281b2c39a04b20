import csv
import gzip
import io

import pytest
from hypothesis import given

from tallybox import read_counts, read_detections
from tallybox.detections.category_names import category_name_of
from tallybox.errors import InputError
from tests.support.detection_sets import assert_same_images, image_sets

HEADER = "image_id,category_id,x1,y1,x2,y2,score\n"


def csv_of(images, *, names: bool) -> str:
    """The detections as a table with every column there is, images without detections included."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(
        ["score", "image_id", "category" if names else "category_id", "x1", "y1", "x2", "y2", "width", "height", "note"]
    )
    for image in images:
        size = image.image_size or ("", "")
        rows = zip(image.scores.tolist(), image.category_ids.tolist(), image.boxes.tolist(), strict=True)
        for score, category_id, box in rows:
            category = category_name_of(category_id) if names else category_id
            table.writerow([score, image.image_id, category, *box, *size, "any"])
        if not len(image):
            table.writerow(["", image.image_id, "", "", "", "", "", *size, ""])
    return text.getvalue()


@pytest.mark.parametrize("names", [False, True], ids=["category-ids", "category-names"])
@given(images=image_sets())
def test_detections_come_back_as_they_were(tmp_path_factory, names, images):
    path = tmp_path_factory.mktemp("csv") / "detections.csv.gz"
    path.write_bytes(gzip.compress(csv_of(images, names=names).encode()))
    read = list(read_detections(path))
    assert_same_images(read, images)
    assert [image.image_size for image in read] == [image.image_size for image in images]


def test_spaces_around_ids_do_not_matter(tmp_path):
    path = tmp_path / "detections.csv"
    path.write_text(HEADER + "7,18,0,0,1,1,0.5\n 7 , 18 ,0,0,1,1,0.5\n")
    assert [(image.image_id, image.category_ids.tolist()) for image in read_detections(path)] == [(7, [18, 18])]


def test_many_rows_keep_their_line_numbers(tmp_path):
    path = tmp_path / "detections.csv"
    rows = [f"{row // 3},18,0,0,1,1,0.5\n" for row in range(10_007)]
    path.write_text(HEADER + "".join(rows))
    assert sum(len(image) for image in read_detections(path)) == len(rows)
    path.write_text(HEADER + "".join([*rows[:-1], "9,18,0,0,1,1,1.5\n"]))
    with pytest.raises(InputError, match=f"line {len(rows) + 1}: scores must be in"):
        list(read_detections(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "7,18,0,0,1,1,nan\n", r"line 2: scores must be in \[0, 1\], but got nan"),
        (HEADER + "7,18,0,0,1,1,high\n", "line 2: score must be a number, but got 'high'"),
        (HEADER + "7,18,0,0,1,1,0.5\n7,18,,0,1,1,0.5\n", "line 3: x1 must be a number, but got ''"),
        (HEADER + "7,18,5,5,1,1,0.5\n", "line 2: boxes must be corners x1 y1 x2 y2"),
        (HEADER + "7,dgo,0,0,1,1,0.5\n", "line 2: category must be one of the 80 known names, but got 'dgo'; did you"),
        (HEADER + ",18,0,0,1,1,0.5\n", "line 2: image_id must be given"),
        (HEADER + "7,18,0,0,1e300,1,0.5\n", "line 2: boxes must be finite"),
        (HEADER + "7,18,0,0\n", "line 2: must have the 7 columns of the header, but got 4; the file may be cut short"),
        ("image_id,x1\n", "must have the columns image_id, category, x1, y1, x2, y2, score, but category is missing"),
        (HEADER.strip() + ",width,height\n7,18,0,0,1,1,0.5,0,5\n", "line 2: width and height must be whole numbers"),
        (HEADER.strip() + ",width,height\n7,18,0,0,1,1,0.5,5,5\n7,18,0,0,1,1,0.5,5,6\n", "image 7 must have one size"),
        (HEADER + "7,18,0,0,2_0,1,0.5\n", "line 2: x2 must be a number, but got '2_0'"),
        (HEADER + "7,18,0,0,1,1,0.5\n7,18,0,0,٣,1,0.5\n", "line 3: x2 must be a number, but got '٣'"),
        (HEADER + "7,18,0,0," + "9" * 5000 + ",1,0.5\n", "line 2: boxes must be finite"),
        (HEADER + "7,18,0,0," + "9" * 5000 + "_,1,0.5\n", "line 2: x2 must be a number, but got '9+[.]{3}9+_?'"),
        (HEADER + f"7,{2**63},0,0,1,1,0.5\n", "line 2: category must be one of the 80 known names"),
        (
            HEADER.strip() + ",width,height\n7,18,0,0,1,1,0.5,6_4,48\n",
            "line 2: width must be a whole number of at least",
        ),
        (HEADER.strip() + ",width,height\n7,18,0,0,1,1,0.5,640,\n", "line 2: width and height must be whole numbers"),
        (HEADER.strip() + ",width,height\n7,18,0,0,1,1,0.5,-640,480\n", "line 2: width must be a whole number of at"),
        ("", "must hold data, but it is empty"),
    ],
)
def test_wrong_detections_are_named_with_file_and_line(tmp_path, text, message):
    path = tmp_path / "detections.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as raised:
        list(read_detections(path))
    assert str(path) in str(raised.value)


def test_counts_are_taken_by_name_and_by_id(tmp_path):
    path = tmp_path / "counts.csv"
    rows = "7,dog,,3\r\n7,,1.0,0\r\na.jpg,teddy bear,,2\r\n"
    path.write_text("\ufeffimage_id,category,category_id,count\r\n" + rows)
    labels = read_counts(path)
    assert labels.counts == {7: {18: 3, 1: 0}, "a.jpg": {88: 2}}
    assert labels.categories[18] == "dog"


def test_counts_by_id_alone_name_no_categories(tmp_path):
    path = tmp_path / "counts.csv.gz"
    path.write_bytes(gzip.compress(b"image_id,category_id,count\n7,500,3\n"))
    labels = read_counts(path)
    assert labels.count(7, 500) == 3
    assert labels.categories == {}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("7,dog,3\n7,dogs,2\n", "line 3: image and category must come once, but 7,dogs came before"),
        ("7,dgo,3\n", "line 2: category must be one of the 80 known names, but got 'dgo'; did you mean 'dog'"),
        ("7,dog,-1\n", "line 2: count must be a whole number of at least 0, but got '-1'"),
        ("7,dog,2.5\n", "line 2: count must be a whole number"),
        ("7,dog,nan\n", "line 2: count must be a whole number"),
        ("7,dog,2_0\n", "line 2: count must be a whole number of at least 0, but got '2_0'"),
        (
            "7,dog,100000000000000000000\n",
            "line 2: count must be at most 2147483647, but got '100000000000000000000'",
        ),
        ("7,dog," + "9" * 5000 + "\n", "line 2: count must be at most 2147483647, but got '9+[.]{3}9+_?'"),
        (",dog,2\n", "line 2: image_id must be given"),
        ("7,dog\n", "line 2: must have the 3 columns of the header, but got 2"),
        ("", "must have a row for each image and category, but it has only a header"),
    ],
)
def test_wrong_counts_are_named_with_file_and_line(tmp_path, rows, message):
    path = tmp_path / "counts.csv"
    path.write_text("image_id,category,count\n" + rows)
    with pytest.raises(InputError, match=message) as raised:
        read_counts(path)
    assert str(path) in str(raised.value)


def test_where_categories_are_named_ids_must_be_known(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("image_id,category_id,count\n7,dog,1\n7,500,2\n")
    with pytest.raises(InputError, match="where categories are named, ids must be among the 80 known, but got 500"):
        read_counts(path)


def test_a_line_without_end_is_not_kept_in_memory(tmp_path):
    path = tmp_path / "detections.csv.gz"
    path.write_bytes(gzip.compress(HEADER.encode() + b"7,18,0,0,1,1," + b"0" * (1 << 24)))
    with pytest.raises(InputError, match=r"detections\.csv\.gz, line 2: must be CSV in UTF-8, but .* field limit"):
        list(read_detections(path))


def test_a_file_that_is_no_text_is_an_error(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_bytes(b"image_id,category,count\n7,\xff\xfe,3\n")
    with pytest.raises(InputError, match="must be CSV in UTF-8"):
        read_counts(path)
