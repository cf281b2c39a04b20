import json
import sys

import pytest

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.detections import Detections
from tallybox.detections.labels import counting_pairs, labelled_detections
from tallybox.detections.parquet import write_parquet
from tallybox.detections.readers import read_category_names, read_counts, read_detections, with_counts
from tallybox.errors import InputError, TallyboxError
from tests.support.detection_sets import assert_same_images
from tests.support.shared_data import data_folder


def labelled(detections, labels):
    return with_counts(read_detections(detections), read_category_names(detections), labels)


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


def test_real_counts_are_the_same_in_csv(tmp_path):
    labels = read_counts(data_folder("coco-count") / "instances_val.json.gz")
    rows = [
        f"{image_id},{labels.categories[category_id]},{count}\n"
        for image_id, of_image in labels.counts.items()
        for category_id, count in of_image.items()
    ]
    (tmp_path / "counts.csv").write_text("image_id,category,count\n" + "".join(rows))
    from_csv = read_counts(tmp_path / "counts.csv")
    assert from_csv.counts == {image_id: of_image for image_id, of_image in labels.counts.items() if of_image}
    assert dict(from_csv.categories) == dict(labels.categories)


def test_names_are_those_of_the_file_or_of_coco(tmp_path):
    write_parquet([], tmp_path / "own.parquet", categories={3: "screw"})
    write_parquet([], tmp_path / "plain.parquet")
    assert read_category_names(tmp_path / "own.parquet") == {3: "screw"}
    assert read_category_names(tmp_path / "plain.parquet") == COCO_CATEGORIES
    assert read_category_names(tmp_path / "results.json") == COCO_CATEGORIES


def test_a_file_of_another_kind_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"detections must be a \.json, .* or \.parquet file, but got .*boxes\.txt"):
        read_detections(tmp_path / "boxes.txt")
    with pytest.raises(InputError, match=r"labels must be a \.json, .*, but got .*counts\.parquet"):
        read_counts(tmp_path / "counts.parquet")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        read_counts(tmp_path / "folder.json")


@pytest.mark.parametrize(("package", "name"), [("pyarrow", "a.parquet"), ("msgspec", "a.json")])
def test_a_package_that_is_not_installed_is_named(monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails as if it were not there
    for module in ("parquet", "coco"):
        monkeypatch.delitem(sys.modules, f"tallybox.detections.{module}", raising=False)
    with pytest.raises(TallyboxError, match=f"reading {name} needs the package {package}, .*tallybox.detections"):
        read_detections(name)


def test_labels_and_detections_are_read_under_the_same_categories(tmp_path):
    path = tmp_path / "found.parquet"
    image = Detections([[0, 0, 9, 9]] * 2, [0.9, 0.8], [0, 1], image_id="a.jpg")
    write_parquet([image], path, categories={0: "a red apple", 1: "person"})
    (tmp_path / "counts.csv").write_text("image_id,category,count\na.jpg,a red apple,3\n")
    images, counts = labelled(path, tmp_path / "counts.csv")
    assert counts.counts == {"a.jpg": {0: 3}}
    assert counts.categories == {0: "a red apple", 1: "person"}
    assert len(next(images)) == 2
    instances = {
        "images": [{"id": 5, "file_name": "a.jpg"}],
        "annotations": [{"image_id": 5, "category_id": 9}] * 4,
        "categories": [{"id": 9, "name": "person"}],
    }
    (tmp_path / "instances.json").write_text(json.dumps(instances))
    images, counts = labelled(path, tmp_path / "instances.json")
    assert counts.counts == {5: {1: 4}}
    assert next(images).category_ids.tolist() == [0, 1]
    assert counts.categories == {0: "a red apple", 1: "person"}
    assert counts.labelled == {1}  # nobody counted the apples


def test_instances_of_some_of_cocos_categories_leave_the_others_unlabelled(tmp_path):
    results = [{"image_id": 5, "category_id": c, "bbox": [0, 0, 9, 9], "score": 0.9} for c in (1, 18)]
    (tmp_path / "found.json").write_text(json.dumps(results))
    person = {"id": 1, "name": "person"}
    instances = {"images": [{"id": 5}], "annotations": [{"image_id": 5, "category_id": 1}], "categories": [person]}
    (tmp_path / "instances.json").write_text(json.dumps(instances))
    images, counts = with_counts(read_detections(tmp_path / "found.json"), {}, tmp_path / "instances.json")
    (image,) = labelled_detections(images, counts)
    assert image.category_ids.tolist() == [1, 18]
    assert [(pair.category_id, pair.true_count) for pair in counting_pairs([image], counts)] == [(1, 1)]


def test_a_file_without_names_keeps_its_ids(tmp_path):
    path = tmp_path / "found.parquet"
    write_parquet([Detections([[0, 0, 9, 9]], [0.9], [18], image_id=7)], path)
    (tmp_path / "counts.csv").write_text("image_id,category,count\n7,dog,3\n")
    _, counts = labelled(path, tmp_path / "counts.csv")
    assert counts.counts == {7: {18: 3}}
