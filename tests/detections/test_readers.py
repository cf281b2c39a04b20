import sys

import pytest

from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.detections.readers import read_category_names, read_counts, read_detections
from tallybox.detections.writers import write_parquet
from tallybox.errors import InputError, TallyboxError
from tests.support.detection_sets import assert_same_images
from tests.support.shared_data import data_folder


def test_real_detections_are_the_same_in_parquet_and_csv(tmp_path):
    images = list(read_detections(data_folder("coco-count") / "detections_yolov4tiny_val.json.gz"))[:200]
    write_parquet(images, tmp_path / "images.parquet", categories=COCO_CATEGORIES)
    assert_same_images(list(read_detections(str(tmp_path / "images.parquet"))), images)
    with (tmp_path / "images.csv").open("w") as file:
        file.write("image_id,category_id,x1,y1,x2,y2,score\n")
        for image in images:
            for category_id, box, score in zip(image.category_ids, image.boxes, image.scores, strict=True):
                file.write(",".join(map(str, [image.image_id, category_id, *box, score])) + "\n")
    assert_same_images(list(read_detections(tmp_path / "images.csv")), images)


def test_a_file_of_another_kind_is_an_error(tmp_path):
    for read, name in ((read_detections, "boxes.txt"), (read_counts, "counts.txt")):
        with pytest.raises(InputError, match=name):
            list(read(tmp_path / name))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(InputError, match="folder"):
        read_counts(tmp_path / "folder.json")


@pytest.mark.parametrize(
    ("package", "name"),
    [("pyarrow", "a.parquet"), ("msgspec", "a.json"), ("pandas", "a.csv"), ("openpyxl", "a.xlsx"), ("yaml", "a.yaml")],
)
def test_a_package_that_is_not_installed_is_named(monkeypatch, tmp_path, package, name):
    (tmp_path / name).write_text("any")
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails as if it were not there
    monkeypatch.delitem(sys.modules, "tallybox.detections.coco", raising=False)
    read = read_category_names if package == "yaml" else read_detections
    with pytest.raises(TallyboxError, match=rf"{package}.*tallybox.detections"):
        list(read(tmp_path / name))


@pytest.mark.parametrize("text", ["names: [nut, bolt]\nnc: 2\n", "path: ../data\nnames:\n  0: nut\n  1: bolt\n"])
def test_yolos_file_names_the_classes(tmp_path, text):
    (tmp_path / "data.yaml").write_text(text)
    assert read_category_names(tmp_path / "data.yaml") == {0: "nut", 1: "bolt"}


@pytest.mark.parametrize(
    "text", ["nc: 2\n", "names: 3\n", "[", "names: {a: b}\n", "!!python/object/apply:os.getcwd []\n"]
)
def test_another_yaml_file_is_an_error(tmp_path, text):
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(InputError, match=r"data\.yaml"):
        read_category_names(tmp_path / "data.yaml")
