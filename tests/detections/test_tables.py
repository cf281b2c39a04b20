"""Tables of detections: CSV, TSV, Excel and data frames, with the column names of several tools."""

import csv
import gzip
import io
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from tallybox import Detections, read_detections
from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.detections.readers import read_table
from tallybox.detections.writers import write_table
from tallybox.errors import InputError
from tests.support.detection_sets import assert_same_images, image_sets

HEADER = "image_id,category_id,x1,y1,x2,y2,score\n"


def csv_of(images, *, names: bool) -> str:
    """The detections as a table with every column there is, images without detections included."""
    text = io.StringIO()
    table = csv.writer(text)
    category = "category" if names else "category_id"
    table.writerow(["score", "image_id", category, "x1", "y1", "x2", "y2", "width", "height", "note"])
    for image in images:
        size = image.image_size or ("", "")
        rows = zip(image.scores.tolist(), image.category_ids.tolist(), image.boxes.tolist(), strict=True)
        for score, category_id, box in rows:
            category = COCO_CATEGORIES[category_id] if names else category_id
            table.writerow([score, image.image_id, category, *box, *size, "any"])
        if not len(image):
            table.writerow(["", image.image_id, "", "", "", "", "", *size, ""])
    return text.getvalue()


def read(folder, text, name="found.csv", **options):
    path = folder / name
    path.write_text(text)
    return list(read_detections(path, **options))


@pytest.mark.parametrize("names", [False, True], ids=["category-ids", "category-names"])
@given(images=image_sets())
def test_detections_come_back_as_they_were(tmp_path_factory, names, images):
    path = tmp_path_factory.mktemp("csv") / "detections.csv.gz"
    path.write_bytes(gzip.compress(csv_of(images, names=names).encode()))
    found = list(read_detections(path))
    assert_same_images(found, images)
    assert [image.image_size for image in found] == [image.image_size for image in images]


def test_rows_of_an_image_may_be_anywhere_and_ids_have_blanks(tmp_path):
    rows = "7,18,0,0,1,1,0.5\n007,1,0,0,1,1,0.25\n 7 , 18 ,0,0,1,1,0.75\n"
    images = read(tmp_path, HEADER + rows)
    assert [(image.image_id, image.scores.tolist()) for image in images] == [(7, [0.5, 0.75]), ("007", [0.25])]


@pytest.mark.parametrize("name", ["found.csv", "found.tsv", "found.xlsx", "found.parquet"])
def test_every_table_that_is_written_is_read(tmp_path, name):
    frame = pd.DataFrame({"image_id": ["a.jpg", "7"], "category": ["nut", "bolt"], "conf": [0.5, 0.75]})
    frame[["xmin", "ymin", "xmax", "ymax"]] = [[0, 0, 9, 9], [1, 1, 5, 5.5]]
    write_table(frame, tmp_path / name)
    assert len(read_table(tmp_path / name)) == 2
    images = list(read_detections(tmp_path / name))
    assert [image.image_id for image in images] == ["a.jpg", 7]
    assert [image.category_ids.tolist() for image in images] == [[1], [0]]
    assert images[0].category_names == {0: "bolt", 1: "nut"}
    np.testing.assert_array_equal(images[1].boxes, [[1, 1, 5, 5.5]])


@pytest.mark.parametrize(
    ("columns", "box"),
    [
        ("x1,y1,x2,y2", "10,20,40,60"),
        ("xmin,ymin,xmax,ymax", "10,20,40,60"),
        ("x_min,y_min,x_max,y_max", "10,20,40,60"),
        ("X,Y,Width,Height", "10,20,30,40"),
        ("left,top,width,height", "10,20,30,40"),
        ("x_center,y_center,width,height", "25,40,30,40"),
        ("xcenter,ycenter,width,height", "25,40,30,40"),
    ],
)
@pytest.mark.parametrize("score", ["score", "confidence", "conf"])
def test_the_names_of_columns_say_what_boxes_are(tmp_path, columns, box, score):
    (image,) = read(tmp_path, f"file_name,name,{columns},{score}\na.jpg,dog,{box},0.5\n")
    np.testing.assert_array_equal(image.boxes, [[10, 20, 40, 60]])
    assert (image.image_id, image.category_ids.tolist(), image.category_names) == ("a.jpg", [18], {18: "dog"})


@pytest.mark.parametrize(
    ("box_format", "expected"),
    [("xyxy", [10, 20, 40, 60]), ("xywh", [10, 20, 50, 80]), ("cxcywh", [-10, -10, 30, 50])],
)
def test_the_box_format_can_be_stated(tmp_path, box_format, expected):
    (image,) = read(tmp_path, HEADER + "7,18,10,20,40,60,0.5\n", box_format=box_format)
    np.testing.assert_array_equal(image.boxes, [expected])
    with pytest.raises(InputError, match="box_format"):
        read(tmp_path, HEADER + "7,18,10,20,40,60,0.5\n", box_format="yxyx")


def test_yolos_fractions_become_pixels_if_the_size_is_known(tmp_path):
    header = "image_id,class,x_center,y_center,width,height,conf"
    row = "7,1,0.5,0.5,0.25,0.5,0.75"
    sized = f"{header},image_width,image_height\n{row},640,480\n"
    (image,) = read(tmp_path, sized, category_names=["nut", "bolt"])
    np.testing.assert_array_equal(image.boxes, [[240, 120, 400, 360]])
    assert (image.image_size, image.category_ids.tolist()) == ((640, 480), [1])
    (image,) = read(tmp_path, f"{header}\n{row}\n", category_names=["nut", "bolt"])
    np.testing.assert_array_equal(image.boxes, [[0.375, 0.25, 0.625, 0.75]])


def test_boxes_that_leave_their_image_are_refused(tmp_path):
    header = "image_id,category,x,y,width,height,score,image_width,image_height\n"
    assert len(read(tmp_path, header + "7,dog,-300,10,1200,400,0.5,640,480\n")) == 1, "over the border, as detectors do"
    with pytest.raises(InputError, match=r"line 2.*640×480.*--box-format"):
        read(tmp_path, header + "7,dog,500,300,600,400,0.5,640,480\n")
    frame = pd.DataFrame([[500, 300, 600, 400, 0.5, "dog"]], columns=["x1", "y1", "x2", "y2", "score", "category"])
    assert len(Detections.from_dataframe(frame, image_size=(640, 480))) == 1
    with pytest.raises(InputError, match="640×480"):
        Detections.from_dataframe(frame, box_format="xywh", image_size=(640, 480))


SIZED = HEADER.strip() + ",width,height\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "7,18,0,0,1,1,nan\n", "line 2: score"),
        (HEADER + "7,18,0,0,1,1,0.5\n7,18,,0,1,1,0.5\n", "line 3: x1 is missing"),
        (HEADER + "7,18,5,5,1,1,0.5\n", "line 2: box"),
        (HEADER + "7,18,0,0,1e300,1,0.5\n", "line 2: box.*finite"),
        (HEADER + "7,1.5,0,0,1,1,0.5\n", "line 2: category_id"),
        (HEADER + ",18,0,0,1,1,0.5\n", "line 2: image_id is missing"),
        (HEADER + "7,18,0,0,1,1,0.5\n7,18,0,0,1,1,0.5,9\n", "line 3"),
        ("image_id,x1,score\n", "boxes"),
        ("category_id,score,x1,y1,x2,y2\n7,0.5,0,0,1,1\n", "image_id"),
        (SIZED + "7,18,0,0,1,1,0.5,-640,480\n", "line 2: image_width"),
        ("image_id,category_id,category,x1,y1,x2,y2,score\n7,1,a,0,0,1,1,1\n7,1,b,0,0,1,1,1\n", "line 3: category 1"),
        ("image_id,class_id,x1,y1,x2,y2,score\n7,1,0,0,1,1,1\n", "class.*--names"),
        ("image_id,category_id,x1,y1,x2,y2,score,score\n7,18,0,0,1,1,0.5,0.9\n", "'score'"),
    ],
)
def test_wrong_detections_are_named_with_file_and_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as raised:
        read(tmp_path, text)
    assert "found.csv" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_an_error(tmp_path, encoding):
    path = tmp_path / "found.csv"
    path.write_bytes((HEADER + "Küche.jpg,18,0,0,1,1,0.5\n").encode(encoding))
    with pytest.raises(InputError, match="UTF-8"):
        list(read_detections(path))


def test_a_cell_at_the_end_of_a_sheet_costs_neither_time_nor_memory(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.append(HEADER.strip().split(","))
    book.active["XFD1048576"] = 1
    book.save(tmp_path / "found.xlsx")
    start = time.monotonic()
    with pytest.raises(InputError, match="1048576"):
        read_table(tmp_path / "found.xlsx")
    assert time.monotonic() - start < 60, "0.2 took hours"


def test_a_sheet_that_unpacks_to_much_or_is_damaged_is_an_error(tmp_path):
    path = tmp_path / "found.xlsx"
    write_table(pd.DataFrame({"image_id": [7]}), path)
    whole = path.read_bytes()
    for damaged in (whole[:500], b"PK\x03\x04" + bytes(500), b"image_id,dog"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"found.xlsx"):
            read_table(path)
