from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import supervision
import torch
from hypothesis import given

from tallybox import CountEstimator, Detections, read_detections
from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.errors import InputError, InputTypeError
from tests.support.detection_sets import assert_same_images, coco_results, detections
from tests.support.predictions import total_of

BOXES = torch.tensor([[1.0, 2.0, 4.0, 6.0], [0.0, 0.0, 9.0, 9.0]])
SCORES = torch.tensor([0.75, 0.5])
EXPECTED = Detections(BOXES, SCORES, [18, 1])
YOLO_NAMES = dict(enumerate(COCO_CATEGORIES.values()))


def ultralytics_result(classes, **attributes):
    """The attributes of its ``Results`` that hold detections."""
    boxes = SimpleNamespace(xyxy=BOXES, conf=SCORES, cls=torch.tensor(classes))
    return SimpleNamespace(boxes=boxes, orig_shape=(480, 640), path="a.jpg", **attributes)


def supervision_detections(classes, names=None):
    data = {} if names is None else {"class_name": np.array(names)}
    return supervision.Detections(BOXES.numpy(), confidence=SCORES.numpy(), class_id=np.array(classes), data=data)


@pytest.mark.parametrize(
    ("image", "names"),
    [
        (Detections.from_ultralytics(ultralytics_result([16.0, 0.0], names=YOLO_NAMES)), COCO_CATEGORIES),
        (Detections.from_supervision(supervision_detections([16, 0], ["dog", "person"])), {18: "dog", 1: "person"}),
        (
            Detections.from_supervision(supervision_detections([16, 0]), class_names=[*YOLO_NAMES.values()]),
            COCO_CATEGORIES,
        ),
        (
            Detections.from_transformers(
                {"scores": SCORES, "labels": torch.tensor([3, 5]), "boxes": BOXES}, class_names={3: "dog", 5: "person"}
            ),
            {18: "dog", 1: "person"},
        ),
        (
            Detections.from_torchvision(
                {"boxes": BOXES, "labels": torch.tensor([16, 0]), "scores": SCORES}, class_names=YOLO_NAMES
            ),
            COCO_CATEGORIES,
        ),
        (Detections.from_torchvision({"boxes": BOXES, "labels": torch.tensor([18, 1]), "scores": SCORES}), None),
        (Detections.from_coco(coco_results([EXPECTED]), category_names={18: "dog", 1: "man"}), {18: "dog", 1: "man"}),
        (
            Detections.from_dataframe(
                pd.DataFrame(BOXES.numpy(), columns=["xmin", "ymin", "xmax", "ymax"]).assign(
                    confidence=[0.75, 0.5], **{"class": [16, 0]}, name=["dog", "person"]
                )
            ),
            {18: "dog", 1: "person"},
        ),
    ],
)
def test_every_adapter_keeps_ids_and_names(image, names):
    assert_same_images([image], [EXPECTED])
    assert (None if image.category_names is None else dict(image.category_names)) == names


@pytest.mark.parametrize(
    "image",
    [
        Detections.from_ultralytics(ultralytics_result([0, 1], names={0: "nut", 1: "bolt"})),
        Detections.from_supervision(supervision_detections([0, 1], ["nut", "bolt"])),
        Detections.from_dataframe(
            pd.DataFrame(BOXES.numpy(), columns=["x1", "y1", "x2", "y2"]).assign(score=[0.75, 0.5], class_id=[0, 1]),
            class_names=["nut", "bolt"],
        ),
        Detections(BOXES, SCORES, [0, 1], category_names={0: "nut", 1: "bolt"}),
    ],
)
def test_an_estimator_matches_categories_by_name(image):
    """0.2 counted nuts as bolts, because its adapters dropped the names."""
    estimator = CountEstimator.untrained({0: "bolt", 1: "nut"})
    expected = estimator.predict(Detections(BOXES, SCORES, [1, 0]), ["nut", "bolt"])
    predicted = estimator.predict(image, ["nut", "bolt"])
    assert predicted["nut"].to_dict() == expected["nut"].to_dict() != expected["bolt"].to_dict()
    assert total_of(estimator, [image])["nut"] == total_of(estimator, [Detections(BOXES, SCORES, [1, 0])])["nut"]
    assert estimator.explain(image).keys() == {0, 1}


def test_names_that_an_estimator_does_not_know_are_counted_apart_or_refused():
    estimator = CountEstimator.untrained({0: "bolt", 1: "nut"})
    some = Detections(BOXES, SCORES, [0, 1], category_names={0: "nut", 1: "gear"})
    assert estimator.predict(some).by_name().keys() == {"nut", "gear"}
    with pytest.raises(InputError, match=r"gear.*bolt"):
        estimator.predict(Detections(BOXES, SCORES, [0, 1], category_names={0: "gear", 1: "pin"}))


def test_the_size_and_the_id_of_an_image_are_kept():
    image = Detections.from_ultralytics(ultralytics_result([16.0, 0.0], names=YOLO_NAMES), image_id=9)
    assert (image.image_size, image.image_id) == ((640, 480), 9)
    assert len(Detections.from_supervision(supervision.Detections.empty(), image_id=9)) == 0


@given(detections())
def test_coco_results_of_one_image_come_back_as_they_were(image):
    converted = Detections.from_coco(coco_results([image]), image_size=(1024, 1024), image_id=7)
    assert_same_images([converted], [image])


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([{"category_id": 1, "bbox": [0, 0, 1, 1]}], "score"),
        ([{"category_id": 1, "bbox": [0, 0, 1], "score": 1}], "bbox"),
        ([{"category_id": 1, "bbox": [9, 9, 1, 1], "score": 1, "image_id": i} for i in (1, 2)], "one image"),
        ([{"category_id": 1, "bbox": [500, 300, 600, 400], "score": 1}], "640×480"),
    ],
)
def test_wrong_coco_results_are_one_clear_line(results, message):
    with pytest.raises(InputError, match=message):
        Detections.from_coco(results, image_size=(640, 480), image_id=7)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Detections.from_ultralytics([ultralytics_result([1, 2])]), "one"),
        (lambda: Detections.from_torchvision({"boxes": []}), "scores"),
        (lambda: Detections.from_torchvision({"boxes": BOXES, "labels": [1, 2], "scores": [3.5, -1.0]}), "logistic"),
        (lambda: Detections.from_transformers(SimpleNamespace(logits=1)), "post_process_object_detection"),
        (lambda: Detections.from_supervision(supervision.Detections(BOXES.numpy())), "confidence"),
        (lambda: Detections.from_ultralytics(ultralytics_result([80, 0], names=YOLO_NAMES)), "80"),
        (lambda: Detections.from_supervision(supervision_detections([16, 0])), "class_names="),
        (lambda: Detections.from_transformers({"scores": SCORES, "labels": SCORES, "boxes": BOXES}), "class_names="),
        (lambda: CountEstimator.untrained({}).predict({"boxes": []}), "from_torchvision"),
    ],
)
def test_wrong_objects_are_one_clear_line(call, message):
    with pytest.raises(InputError, match=message):
        call()
    with pytest.raises(InputTypeError):
        Detections.from_torchvision(3)


FRAME = pd.DataFrame({"x": [9], "y": [9], "w": [3], "h": [3], "score": [1.0]})


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ({"category_id": [16]}, {"class_names": {16: "dog"}}, {18: "dog"}),
        ({"category_id": [3], "category": ["dog"]}, {"class_names": {3: "dog", 4: "bolt"}}, {3: "dog", 4: "bolt"}),
        ({"category": ["nut"]}, {"class_names": ["bolt", "nut"]}, {0: "bolt", 1: "nut"}),
        ({"category_id": [5], "category": ["bolt"]}, {}, {5: "bolt"}),
        ({"class": ["Dog"]}, {}, {18: "dog"}),
        ({"class": ["16"]}, {"class_names": YOLO_NAMES}, dict(COCO_CATEGORIES)),
        ({"category_id": ["dog"]}, {}, {18: "dog"}),
    ],
)
def test_categories_of_a_data_frame_go_by_the_caller_then_by_ids_then_by_names(columns, options, expected):
    image = Detections.from_dataframe(FRAME.assign(**columns), **options)
    assert image.category_names == expected
    assert image.category_ids[0] in expected


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (FRAME.assign(category="dog").drop(columns="w"), {}, "boxes"),
        (FRAME.assign(category="dog").drop(columns="score"), {}, "score"),
        (FRAME, {}, "category"),
        (FRAME.assign(class_id=16), {}, "class"),
        (FRAME.assign(category="dog"), {"class_names": ["bolt"]}, "dog"),
        (pd.concat([FRAME] * 2).assign(category="dog", photo=["a", "b"]), {}, "photo"),
    ],
)
def test_data_frames_that_leave_a_doubt_are_refused(frame, options, message):
    with pytest.raises(InputError, match=message):
        Detections.from_dataframe(frame, **options)


def test_a_data_frame_names_its_image():
    frame = FRAME.assign(category="dog", photo="a.jpg")
    assert Detections.from_dataframe(frame).image_id == "a.jpg"
    assert Detections.from_dataframe(frame, image_id=0).image_id == 0
    assert Detections.from_dataframe(frame.drop(columns="photo")).image_id is None
    assert len(Detections.from_dataframe(frame[:0], image_id=3)) == 0


def test_the_csv_of_supervision_is_read(tmp_path):
    for name, names in (("named.csv", ["dog", "person"]), ("numbers.csv", None)):
        with supervision.CSVSink(str(tmp_path / name)) as sink:
            sink.append(supervision_detections([16, 0], names), {"frame_index": 7})
    expected = [Detections(BOXES, SCORES, [18, 1], image_id=7)]
    assert_same_images(list(read_detections(tmp_path / "named.csv")), expected)
    assert_same_images(list(read_detections(tmp_path / "numbers.csv", category_names=YOLO_NAMES)), expected)
    with pytest.raises(InputError, match="class_name"):
        list(read_detections(tmp_path / "numbers.csv"))
