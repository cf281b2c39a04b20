import collections
import contextlib
import gzip
import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pycocotools.coco import COCO

from tallybox import read_detections
from tallybox.detections.coco import read_coco_instances
from tallybox.errors import InputError
from tallybox.files import read_json
from tests.support.detection_sets import assert_same_images, coco_results, image_sets, write_json
from tests.support.shared_data import data_folder
from tests.support.tolerances import ROUNDING

RESULT = {"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "score": 0.5}
INSTANCES = {
    "info": {"year": 2017, "notes": ["[", '"', {}]},
    "images": [{"id": 7, "width": 640, "height": 480, "file_name": "7.jpg"}, {"id": 9}],
    "licenses": [],
    "annotations": [
        {"id": 1, "image_id": 7, "category_id": 18, "bbox": [0, 0, 9, 9], "segmentation": [[0, 1, 2]], "iscrowd": 0},
        {"id": 2, "image_id": 7, "category_id": 18, "bbox": [0, 0, 9, 9]},
        {"id": 3, "image_id": 7, "category_id": 1, "segmentation": {"counts": [1], "size": [9, 9]}, "iscrowd": 1},
        {"id": 4, "image_id": 7, "category_id": 1, "iscrowd": 0},
    ],
    "categories": [{"id": 18, "name": "dog", "supercategory": "animal"}, {"id": 1, "name": "person"}],
}


@given(image_sets(), st.randoms())
def test_results_come_back_image_by_image_whatever_their_order(tmp_path_factory, images, random):
    images = [image for image in images if len(image)]  # results cannot name an image without detections
    owners = [image.image_id for image in images for _ in range(len(image))]
    random.shuffle(owners)
    waiting = {image.image_id: coco_results([image]) for image in images}
    mixed = [waiting[owner].pop(0) for owner in owners]
    path = write_json(tmp_path_factory.mktemp("results") / "results.json.gz", mixed)
    by_id = {image.image_id: image for image in images}
    assert_same_images(list(read_detections(path)), [by_id[image_id] for image_id in dict.fromkeys(owners)])


def test_ids_that_are_texts_of_numbers_are_numbers(tmp_path):
    path = write_json(tmp_path / "results.json", [{**RESULT, "image_id": "285"}, {**RESULT, "image_id": 285}])
    assert [(image.image_id, len(image)) for image in read_detections(path)] == [(285, 2)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([RESULT, {**RESULT, "score": float("nan")}], "malformed"),
        ([RESULT, {**RESULT, "score": 1.5}], "record 1: score 1.5"),
        ([RESULT, {**RESULT, "score": "high"}], r"\[1\].score"),
        ([RESULT, {**RESULT, "bbox": [1, 2, -3, 4]}], "record 1: box"),
        ([RESULT, {**RESULT, "category_id": 2**63}], r"\[1\].category_id"),
        ('[{"image_id":7,"category_id":18,"bbox":[1,2,3,' + "9" * 5000 + '],"score":1}]', "COCO results"),
        (INSTANCES, "COCO results"),
        ("", "empty"),
        ("[" * 100_000, "COCO results"),
        ('[{"image_id":7,"category_id":18,"bbox":[1,2,3,4],"sco', "COCO results"),
    ],
)
def test_wrong_results_are_named_with_file_and_record(tmp_path, content, message):
    path = write_json(tmp_path / "results.json", content)
    with pytest.raises(InputError, match=message) as raised:
        list(read_detections(path))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_results_without_names_take_those_that_are_given(tmp_path):
    path = write_json(tmp_path / "results.json", [RESULT])
    assert next(read_detections(path)).category_names is None
    (image,) = read_detections(path, category_names={18: "nut", 19: "bolt"})
    assert image.category_names == {18: "nut", 19: "bolt"}


@pytest.mark.parametrize("name", ["instances.json", "instances.json.gz"])
def test_instances_give_counts_sizes_and_names(tmp_path, name):
    labels = read_coco_instances(write_json(tmp_path / name, INSTANCES))
    assert labels.counts == {7: {18: 2}, 9: {}}
    assert labels.image_sizes == {7: (640, 480)}
    assert labels.categories == {18: "dog", 1: "person"}
    assert labels.unknown == {(7, 1)}, "nobody knows how many a crowd holds"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": INSTANCES["images"] * 2}, "images"),
        ({"categories": INSTANCES["categories"] * 2}, "categories"),
        ({"annotations": [{"image_id": 8, "category_id": 18}]}, "annotation 0: image 8"),
        ({"annotations": [{"image_id": 7, "category_id": 2}]}, "annotation 0: .*category 2"),
        ({"images": [{"id": 7}, {"id": 9, "width": -5, "height": 4}]}, "images"),
        ({"categories": [{"id": 2**63, "name": "dog"}]}, "categories"),
        ([RESULT], "COCO instances"),
    ],
)
def test_wrong_instances_are_named_with_file_and_record(tmp_path, change, message):
    path = write_json(tmp_path / "instances.json", {**INSTANCES, **change} if isinstance(change, dict) else change)
    with pytest.raises(InputError, match=message) as raised:
        read_coco_instances(path)
    assert str(path) in str(raised.value)


def test_a_file_that_unpacks_to_much_is_refused(tmp_path):
    path = write_json(tmp_path / "results.json.gz", [RESULT] * 1000)
    with pytest.raises(InputError, match="1,000 bytes"):
        read_json(path, list, "anything", max_bytes=1000)


def test_pycocotools_reads_the_same_from_real_files(tmp_path):
    folder = data_folder("coco-count")
    for name in ("instances_val", "detections_yolov4tiny_val"):
        (tmp_path / f"{name}.json").write_bytes(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(tmp_path / "instances_val.json"))
        results = truth.loadRes(str(tmp_path / "detections_yolov4tiny_val.json"))
    labels = read_coco_instances(folder / "instances_val.json.gz")
    counted = collections.Counter(
        (a["image_id"], a["category_id"]) for a in truth.loadAnns(truth.getAnnIds(iscrowd=False))
    )
    assert counted == {(i, c): n for i, of_image in labels.counts.items() for c, n in of_image.items()}
    assert list(labels.counts) == truth.getImgIds()
    images = list(read_detections(folder / "detections_yolov4tiny_val.json.gz"))
    assert sum(len(image) for image in images) == len(results.anns)
    for image in images[::50]:
        expected = results.loadAnns(results.getAnnIds(imgIds=image.image_id))
        assert image.category_ids.tolist() == [result["category_id"] for result in expected]
        np.testing.assert_allclose(image.scores, [result["score"] for result in expected], *ROUNDING[torch.float32])
        left_top_size = np.array([result["bbox"] for result in expected])
        corners = np.concatenate((left_top_size[:, :2], left_top_size[:, :2] + left_top_size[:, 2:]), axis=1)
        np.testing.assert_allclose(image.boxes, corners, *ROUNDING[torch.float32])
