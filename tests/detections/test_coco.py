import contextlib
import gzip
import io
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pycocotools.coco import COCO

from tallybox.detections.coco import read_coco_instances, read_coco_results
from tallybox.errors import InputError
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
    assert_same_images(list(read_coco_results(path)), [by_id[image_id] for image_id in dict.fromkeys(owners)])


def test_ids_that_are_texts_of_numbers_are_numbers(tmp_path):
    path = write_json(tmp_path / "results.json", [{**RESULT, "image_id": "285"}, {**RESULT, "image_id": 285}])
    assert [(image.image_id, len(image)) for image in read_coco_results(path)] == [(285, 2)]


def test_no_results_are_no_images(tmp_path):
    assert list(read_coco_results(write_json(tmp_path / "results.json", []))) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([RESULT, {**RESULT, "score": float("nan")}], "record 1: numbers must be finite, but got NaN"),
        ([RESULT, {**RESULT, "score": 1.5}], r"record 1: scores must be in \[0, 1\], but got 1.5; apply a logistic"),
        ([RESULT, {**RESULT, "score": "high"}], "record 1: Expected `float`, got `str` in score"),
        (
            [RESULT, {**RESULT, "bbox": [1, 2, -3, 4]}],
            r"record 1: .*sizes of at least 0, but got \[1.0, 2.0, -3.0, 4.0\]",
        ),
        ([RESULT, {**RESULT, "bbox": [1, 2, 3]}], "record 1: Expected `array` of length 4"),
        ([RESULT, {**RESULT, "category_id": "dog"}], "record 1: Expected `int`, got `str` in category_id"),
        ([RESULT, {**RESULT, "image_id": 1.5}], "record 1: Expected `int | str`, got `float` in image_id"),
        ([{"image_id": 7, "category_id": 1, "score": 1}], "record 0: Object missing required field `bbox`"),
        ([RESULT, {**RESULT, "category_id": 2**63}], "record 1: Expected `int` <= 9223372036854775807 in category_id"),
        ([RESULT, {**RESULT, "image_id": 10**30}], "record 1: Expected `int` <= 9223372036854775807 in image_id"),
        (
            '[{"image_id":7,"category_id":18,"bbox":[1,2,3,' + "9" * 5000 + '],"score":1}]',
            "record 0: Number out of range",
        ),
        ('[{"image_id":7,"category_id":' + "9" * 5000 + ',"bbox":[1,2,3,4],"score":1}]', "record 0: Integer value out"),
        ([RESULT, {**RESULT, "score": 1e400}], "record 1: numbers must be finite, but got Infinity"),
        ([RESULT, 5], "record 1: Expected `object`, got `int`"),
        (INSTANCES, "must be COCO results .*, but it is an object; is it COCO instances"),
        ("", "results.json must hold data, but it is empty"),
        ("nonsense", "must be COCO results"),
        ('[{"image_id":7,"category_id":18,"bbox":[1,2,3,4],"sco', "cut short"),
    ],
)
def test_wrong_results_are_named_with_file_and_record(tmp_path, content, message):
    path = write_json(tmp_path / "results.json", content)
    with pytest.raises(InputError, match=message) as raised:
        list(read_coco_results(path))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_gzip_file_that_is_cut_short_or_damaged_is_an_error(tmp_path):
    path = write_json(tmp_path / "results.json.gz", [RESULT] * 1000)
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole[: len(whole) // 2], whole[:40] + bytes(8) + whole[48:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"results\.json\.gz"):
            list(read_coco_results(path))


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(InputError, match="must be a file, but there is none; check the path"):
        list(read_coco_results(tmp_path / "none.json"))


@pytest.mark.parametrize("name", ["instances.json", "instances.json.gz"])
def test_instances_give_counts_sizes_and_names(tmp_path, name):
    labels = read_coco_instances(write_json(tmp_path / name, INSTANCES))
    assert labels.counts == {7: {18: 2}, 9: {}}
    assert labels.image_sizes == {7: (640, 480), 9: None}
    assert labels.categories == {18: "dog", 1: "person"}


def test_how_many_a_crowd_holds_is_unknown(tmp_path):
    labels = read_coco_instances(write_json(tmp_path / "instances.json", INSTANCES))
    assert labels.unknown == {(7, 1)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": INSTANCES["images"] * 2}, "images, record 2: ids must differ, but 7 was there before"),
        ({"categories": INSTANCES["categories"] * 2}, "categories, record 2: ids must differ, but 18 was there before"),
        ({"annotations": INSTANCES["annotations"] * 2}, "annotations, record 4: ids must differ, but 1 was there"),
        (
            {"annotations": [{"image_id": 8, "category_id": 18}]},
            "annotations, record 0: image 8 is not among its images",
        ),
        (
            {"annotations": [{"image_id": 7, "category_id": 2}]},
            "annotations, record 0: category 2 is not among its cat",
        ),
        ({"annotations": [{"image_id": 7}]}, "record 0: Object missing required field `category_id`"),
        ({"images": [{"id": None}]}, "images, record 0: Expected `int | str`, got `null` in id"),
        (
            {"images": [{"id": 7}, {"id": 9, "width": -5, "height": 4}]},
            "images, record 1: width and height must be whole",
        ),
        ({"images": [{"id": 7, "width": 640}]}, "images, record 0: width and height must be .* but got 640 and None"),
        ({"categories": [{"id": 2**63, "name": "dog"}]}, "categories, record 0: Expected `int` <= 9223372036854775807"),
        ({"annotations": [{"image_id": 7, "category_id": 10**30}]}, "annotations, record 0: Expected `int` <="),
    ],
)
def test_wrong_instances_are_named_with_file_and_record(tmp_path, change, message):
    path = write_json(tmp_path / "instances.json", {**INSTANCES, **change})
    with pytest.raises(InputError, match=message) as raised:
        read_coco_instances(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("missing", ["images", "annotations", "categories"])
def test_instances_without_a_part_are_an_error(tmp_path, missing):
    content = {key: value for key, value in INSTANCES.items() if key != missing}
    with pytest.raises(InputError, match=f"but {missing} is missing; it has"):
        read_coco_instances(write_json(tmp_path / "instances.json", content))


def test_results_in_place_of_instances_are_an_error(tmp_path):
    with pytest.raises(InputError, match=r"must be COCO instances .*, but it is an array; is it COCO results"):
        read_coco_instances(write_json(tmp_path / "results.json", [RESULT]))


def test_pycocotools_reads_the_same_from_real_files(tmp_path):
    folder = data_folder("coco-count")
    for name in ("instances_val", "detections_yolov4tiny_val"):
        (tmp_path / f"{name}.json").write_bytes(gzip.decompress((folder / f"{name}.json.gz").read_bytes()))
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(tmp_path / "instances_val.json"))
        results = truth.loadRes(str(tmp_path / "detections_yolov4tiny_val.json"))
    labels = read_coco_instances(folder / "instances_val.json.gz")
    counted = Counter((a["image_id"], a["category_id"]) for a in truth.loadAnns(truth.getAnnIds(iscrowd=False)))
    assert counted == {(i, c): n for i, of_image in labels.counts.items() for c, n in of_image.items()}
    assert list(labels.counts) == truth.getImgIds()
    images = list(read_coco_results(folder / "detections_yolov4tiny_val.json.gz"))
    assert sum(len(image) for image in images) == len(results.anns)
    for image in images[::50]:
        expected = results.loadAnns(results.getAnnIds(imgIds=image.image_id))
        assert image.category_ids.tolist() == [result["category_id"] for result in expected]
        np.testing.assert_allclose(image.scores, [result["score"] for result in expected], *ROUNDING[torch.float32])
        left_top_size = np.array([result["bbox"] for result in expected])
        corners = np.concatenate((left_top_size[:, :2], left_top_size[:, :2] + left_top_size[:, 2:]), axis=1)
        np.testing.assert_allclose(image.boxes, corners, *ROUNDING[torch.float32])
