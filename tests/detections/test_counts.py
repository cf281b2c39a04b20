"""Tables of true counts: a row for each image and category, or a column for each category."""

import gzip

import pytest

from tallybox import read_counts
from tallybox.errors import InputError


def read(folder, text, name="counts.csv", **options):
    path = folder / name
    path.write_text(text)
    return read_counts(path, **options)


def test_a_wide_table_has_a_row_for_each_photo_and_a_column_for_each_category(tmp_path):
    labels = read(tmp_path, "photo,person,Dog\na.jpg,3,0\nb.jpg,,2\n")
    assert labels.counts == {"a.jpg": {1: 3, 18: 0}, "b.jpg": {18: 2}}
    assert labels.labelled == {1, 18}
    assert labels.unknown == {("b.jpg", 1)}, "nobody filled an empty cell"


def test_a_long_table_has_a_row_for_each_photo_and_category(tmp_path):
    labels = read(
        tmp_path, "\ufeffimage_id,category,count\r\n7,dog,3\r\n7,person,0\r\na.jpg,teddy bear,2.0\r\n8,,0\r\n"
    )
    assert labels.counts == {7: {18: 3, 1: 0}, "a.jpg": {88: 2}, 8: {}}
    assert labels.categories == {1: "person", 18: "dog", 88: "teddy bear"}
    assert labels.labelled == {1, 18, 88}


@pytest.mark.parametrize(
    "text",
    [
        "Photo,Dog\na.jpg,3\n",
        "File name,dog\na.jpg,3\n",
        "IMAGE_ID,CATEGORY_ID,COUNT\na.jpg,18,3\n",
        "image;dog\na.jpg;3\n",
        "image\tdog\t\na.jpg\t3\t\n",
        "image,dog,notes\na.jpg,3,\n",
        "image,category,count,most_probable,expected,low,high\na.jpg,dog,3,3,3.1,2,4\n",
    ],
)
def test_tables_of_spreadsheets_and_of_tallybox_count_are_read(tmp_path, text):
    assert read(tmp_path, text).counts == {"a.jpg": {18: 3}}


def test_own_categories_are_numbered_by_name_unless_ids_are_stated(tmp_path):
    named = read(tmp_path, "image_id,category,count\n7,nut,3\n7,bolt,1\n")
    assert (named.categories, named.counts, named.ids_are_arbitrary) == ({0: "bolt", 1: "nut"}, {7: {1: 3, 0: 1}}, True)
    both = read(tmp_path, "image_id,category_id,category,count\n7,5,nut,3\n")
    assert (both.categories, both.counts, both.ids_are_arbitrary) == ({5: "nut"}, {7: {5: 3}}, False)


@pytest.mark.parametrize("column", ["category", "category_id"])
def test_counts_by_id_alone_name_no_categories(tmp_path, column):
    path = tmp_path / "counts.csv.gz"
    path.write_bytes(gzip.compress(f"image_id,{column},count\n7,500,3\n".encode()))
    labels = read_counts(path)
    assert (labels.count(7, 500), labels.categories) == (3, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image_id,dog\n7,3.0\n8,many\n", "line 3: dog 'many'"),
        ("image_id,dog,notes\n7,2,two hide\n", "line 2: notes 'two hide'"),
        ("image_id,dog\n7,3\n7,4\n", "two counts"),
        ("image_id,16\n7,3\n", "'16' is a number"),
        ("image_id,dog,dog\n7,3,3\n", "'dog'"),
        ("dog,cat\n7,3\n", "image_id"),
        ("image_id,category,count\n", "no counts"),
        ("image_id\n", "no counts"),
        ("image_id,category,count\n7,dog,3\n7,Dog,2\n", "line 3: .* two counts"),
        ("image_id,category,count\n7,dog,-1\n", "line 2: count '-1'"),
        ("image_id,category,count\n7,dog,100000000000000000000\n", "line 2: count '1000"),
        ("image_id,category,count\n,dog,2\n", "line 2: image_id is missing"),
        ("image_id,category,count\n8,,2\n", "line 2: category is missing"),
    ],
)
def test_wrong_counts_are_named_with_file_and_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as raised:
        read(tmp_path, text)
    assert "counts.csv" in str(raised.value)
