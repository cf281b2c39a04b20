"""Wide tables of counts, Excel sheets, and what `tallybox count --csv` writes."""

import pytest

from tallybox.detections.image_ids import match_photos
from tallybox.detections.labels import TrueCounts
from tallybox.detections.readers import read_counts, with_counts
from tallybox.errors import InputError, TallyboxError


def table(folder, text, name="counts.csv"):
    path = folder / name
    path.write_text(text)
    return path


def test_a_wide_table_has_a_row_for_each_photo_and_a_column_for_each_category(tmp_path):
    labels = read_counts(table(tmp_path, "photo,people,Dog\na.jpg,3,0\nb.jpg,,2\n"))
    assert labels.counts == {"a.jpg": {1: 3, 18: 0}, "b.jpg": {18: 2}}
    assert labels.labelled == {1, 18}
    assert labels.unknown == {("b.jpg", 1)}, "an empty cell was counted by nobody"


@pytest.mark.parametrize(
    "text",
    [
        "Photo,Dog\na.jpg,3\n",
        "Filename,dog\na.jpg,3\n",
        "File name,dog\na.jpg,3\n",
        "photo,Category,Count\na.jpg,dog,3\n",
        "IMAGE_ID,CATEGORY_ID,COUNT\na.jpg,18,3\n",
    ],
)
def test_the_case_of_headers_does_not_matter(tmp_path, text):
    assert read_counts(table(tmp_path, text)).counts == {"a.jpg": {18: 3}}


def test_an_empty_cell_is_zero_on_request(tmp_path):
    labels = read_counts(table(tmp_path, "image_id,person,dog\n7,3,\n"), blank_is_zero=True)
    assert labels.counts == {7: {1: 3, 18: 0}}
    assert not labels.unknown


def test_a_column_of_text_that_is_no_category_is_left_out_and_named(tmp_path):
    with pytest.warns(UserWarning, match="column 'notes' holds text and is no category; it is left out"):
        labels = read_counts(table(tmp_path, "image,dog,notes\na.jpg,3,two hide\n"))
    assert labels.labelled == {18}


def test_whole_numbers_may_have_a_decimal_point_as_pandas_writes_beside_empty_cells(tmp_path):
    wide = table(tmp_path, "photo,dog,person\na.jpg,3.0,1\nb.jpg,,2.\n")
    assert read_counts(wide).counts == {"a.jpg": {18: 3, 1: 1}, "b.jpg": {1: 2}}
    assert read_counts(table(tmp_path, "image_id,category,count\n7,dog,3.0\n")).counts == {7: {18: 3}}


@pytest.mark.parametrize("columns", ["image,dog,notes", "image,dog,notes,", "image,dog,16"])
def test_an_empty_column_is_left_out(tmp_path, columns):
    with pytest.warns(UserWarning, match="is empty and is no category; it is left out"):
        labels = read_counts(table(tmp_path, f"{columns}\na.jpg,3{',' * (columns.count(',') - 1)}\n"))
    assert labels.counts == {"a.jpg": {18: 3}}


@pytest.mark.parametrize("column", ["image", "photo", "image_id"])
def test_a_photo_of_nothing_has_no_category(tmp_path, column):
    assert read_counts(table(tmp_path, f"{column},category,count\n7,dog,3\n8,,0\n")).counts == {7: {18: 3}, 8: {}}
    with pytest.raises(InputError, match="line 2: category must be given"):
        read_counts(table(tmp_path, f"{column},category,count\n8,,2\n"))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_an_error_with_its_cure(tmp_path, encoding):
    path = tmp_path / "counts.csv"
    path.write_bytes("photo;dog\nKüche.jpg;3\n".encode(encoding))
    with pytest.raises(InputError, match=r'must be CSV in UTF-8, .*; in Excel, save it as "CSV UTF-8"'):
        read_counts(path)


@pytest.mark.parametrize(("separator", "name"), [(";", "counts.csv"), ("\t", "counts.csv"), ("\t", "counts.tsv")])
def test_tables_that_excel_saves_with_another_separator_are_read(tmp_path, separator, name):
    labels = read_counts(table(tmp_path, "\ufeffimage_id,dog\n7,3\n".replace(",", separator), name))
    assert labels.counts == {7: {18: 3}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "image_id,bolt\n7,3\n",
            "line 1: category must be one of the 80 known names, but got 'bolt'; where detections",
        ),
        ("image_id,perzon\n7,3.0\n8,\n", "line 1: .* but got 'perzon'; did you mean 'person'\\?$"),
        ("image_id,perzon\n7,many\n8,2\n", "line 1: .* but got 'perzon'; did you mean 'person'"),
        ("image_id,dog\n7,3.0\n8,many\n", "line 3: dog must be a whole number of at least 0, but got 'many'"),
        ("image_id,dog\n7,2.5\n", "line 2: dog must be a whole number of at least 0, but got '2.5'"),
        ("image_id,dog,dogs\n7,3,3\n", "each category must have one column, but 'dogs' comes twice"),
        ("image_id,dog\n7,3\n7,4\n", "line 3: an image must have one row, but 7 came before"),
        ("image_id,dog\n7,many\n", "line 2: dog must be a whole number of at least 0, but got 'many'"),
        ("image_id,dog\n,3\n", "line 2: image_id must be given"),
        ("image_id,dog\n", "must have the columns image_id, category, count, or image_id and one for each category"),
        ("image_id\n7\n", "must have the columns image_id, category, count, or image_id and one for each category"),
        ("name,dog\n7,3\n", r"but got \['name', 'dog'\]; image_id may also be called image, photo, file, file_name"),
        ("photo,16\n7,3\n", "line 1: category must be a name, but got '16'"),
        ("photo,count\n7,3\n", "the columns image_id, category, count, or image_id and one for each .* but got"),
        ("photo,category\n7,dog\n", "the columns image_id, category, count, or image_id and one for each .* but got"),
        ("photo,number\n7,3\n", "got 'number'; .*; rename or remove the column: a table has the columns image_id, cat"),
    ],
)
def test_wrong_wide_tables_are_one_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_counts(table(tmp_path, text))


def test_names_of_ones_own_are_columns(tmp_path):
    labels = read_counts(table(tmp_path, "image_id,bolts,nut\n7,3,1\n"), {0: "bolt", 1: "nut"})
    assert labels.counts == {7: {0: 3, 1: 1}}


def test_a_name_of_ones_own_needs_ids_where_the_detections_have_no_names(tmp_path):
    path = table(tmp_path, "image_id,category,count\n7,bolt,3\n")
    with pytest.raises(
        InputError, match=r"got 'bolt'; where detections name no .* add a column category_id to the lab"
    ):
        read_counts(path)
    with pytest.raises(InputError, match="where detections name no categories"):
        with_counts([], {}, path)
    with pytest.raises(InputError, match="one of the 1 known names, but got 'bolt'; 'tallybox categories' lists them"):
        read_counts(path, {0: "nut"})


def test_numbers_in_the_column_of_names_are_ids_and_warned_of(tmp_path):
    path = table(tmp_path, "image_id,category,count\n7,16,3\n7,dog,1\n")
    with pytest.warns(UserWarning, match="taken as ids of the detections, 16 as 'bird'; class numbers of a detector"):
        assert read_counts(path).counts == {7: {16: 3, 18: 1}}


def test_a_number_is_a_category_where_it_is_its_name(tmp_path):
    assert read_counts(table(tmp_path, "image_id,16\n7,3\n"), {0: "16"}).counts == {7: {0: 3}}


def test_what_count_writes_is_read_after_correction(tmp_path):
    header = "image,category,count,most_probable,expected,low,high,at_least,calibrated\n"
    rows = "a.jpg,dog,2,2,2.1,2,3,,true\nb.jpg,,0,,,,,,\ntotal,dog,2,,2.1,1,3,,true\n"
    assert read_counts(table(tmp_path, header + rows)).counts == {"a.jpg": {18: 2}, "b.jpg": {}}
    wide = table(tmp_path, "image,dog\na.jpg,2\nb.jpg,0\ntotal,2\n")
    assert read_counts(wide).counts == {"a.jpg": {18: 2}, "b.jpg": {18: 0}}


def test_a_sheet_of_excel_is_a_table(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (("photo", "dog", "person", None), ("a.jpg", 3, 2.0, None), (None, None, None), (7, None, 1)):
        book.active.append(row)
    path = tmp_path / "counts.xlsx"
    book.save(path)
    labels = read_counts(path)
    assert labels.counts == {"a.jpg": {18: 3, 1: 2}, 7: {1: 1}}
    assert labels.unknown == {(7, 18)}
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match=r"counts\.xlsx must be an Excel file \(.xlsx\), but it is none, or damaged"):
        read_counts(path)


def test_a_formula_without_a_value_is_refused(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (("photo", "dog"), ("a.jpg", 3), ("b.jpg", "=B2+1")):
        book.active.append(row)
    book.save(tmp_path / "counts.xlsx")
    with pytest.raises(
        InputError, match=r"line 3: a formula must .* '=B2\+1' has none; open the file in a spreadsheet"
    ):
        read_counts(tmp_path / "counts.xlsx")


def test_without_the_reader_of_excel_the_message_has_the_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(
        TallyboxError, match=r"needs the package openpyxl.*; pip install openpyxl, or save the sheet as"
    ):
        read_counts(table(tmp_path, "not read", "counts.xlsx"))


def test_labels_find_their_photos_by_path_name_and_number():
    photos = ["2024/IMG_1.JPG", "2024/b.jpg", "000000000285.jpg", "x/c.jpg", "y/c.jpg"]
    names = {"img_1": "img_1", "b.png": "b.png", 285: "285", "y/c.jpg": "y/c.jpg"}
    assert match_photos(names, photos[:3] + photos[4:]) == {
        "img_1": "2024/IMG_1.JPG",
        "b.png": "2024/b.jpg",
        285: "000000000285.jpg",
        "y/c.jpg": "y/c.jpg",
    }
    assert match_photos({"c": "c", "x/c.jpg": "x/c.jpg"}, photos) == {"x/c.jpg": "x/c.jpg"}, "two photos are called c"
    with pytest.raises(InputError, match=r"written differently: 'c' is 'y/c.jpg' among the detections"):
        TrueCounts({"img_1": {}, "b": {}, "c": {}}).of_photos(photos)


def test_labels_of_one_folder_are_not_applied_to_another():
    labels = TrueCounts({"kitchen/1.jpg": {18: 1}, "kitchen/2.jpg": {18: 2}})
    with pytest.raises(InputError, match="none of their 2 images is among the 2 labelled ones"):
        labels.of_photos(["bath/1.jpg", "bath/2.jpg"])
    photos = ["kitchen/1.jpg", "bath/1.jpg", "bath/2.jpg"]
    with pytest.warns(UserWarning, match=r"\('kitchen/2.jpg'\), and 2 images of the detections are not among"):
        assert labels.of_photos(photos).file_names == {"kitchen/1.jpg": "kitchen/1.jpg"}
    for name in ("/home/me/kitchen/1.jpg", r"C:\photos\Kitchen\1.JPG", "kitchen/1", "./kitchen/1.jpg", "KITCHEN/1.png"):
        assert match_photos({name: name}, photos) == {name: "kitchen/1.jpg"}


def test_labels_without_a_photo_are_left_out_and_named():
    labels = TrueCounts({"a": {18: 1}, "b": {18: 2}})
    with pytest.warns(UserWarning, match=r"1 labels are of no photo \('b'\); they are left out"):
        assert labels.of_photos(["a.jpg"]).counts == {"a": {18: 1}}
    with pytest.raises(InputError, match=r"two labels are of 'a.jpg'; one is 'a'"):
        TrueCounts({"a": {}, "a.jpg": {}}).of_photos(["a.jpg"])
    with pytest.raises(InputError, match="none of their 1 images is among the 2 labelled ones"):
        labels.of_photos(["z.jpg"])
