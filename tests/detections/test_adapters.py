from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import supervision
import torch
from hypothesis import given

from tallybox import CountEstimator, Detections, read_detections
from tallybox.detections.adapters import IMAGE_COLUMNS
from tallybox.detections.category_names import COCO_CATEGORIES, COCO_CATEGORY_IDS, category_id_of
from tallybox.errors import InputError, InputTypeError
from tests.support.detection_sets import assert_same_images, coco_results, detections
from tests.support.estimators import small_estimator

BOXES = torch.tensor([[1.0, 2.0, 4.0, 6.0], [0.0, 0.0, 9.0, 9.0]])
SCORES = torch.tensor([0.75, 0.5])
EXPECTED = Detections(BOXES, SCORES, [18, 1])


def ultralytics_result(classes):
    """The attributes of its ``Results`` that hold detections."""
    boxes = SimpleNamespace(xyxy=BOXES, conf=SCORES, cls=torch.tensor(classes))
    return SimpleNamespace(boxes=boxes, orig_shape=(480, 640), path="a.jpg")


def test_supervision_detections_are_taken():
    detections = supervision.Detections(BOXES.numpy(), confidence=SCORES.numpy(), class_id=np.array([18, 1]))
    assert_same_images([Detections.from_supervision(detections, class_names=COCO_CATEGORIES)], [EXPECTED])
    assert len(Detections.from_supervision(supervision.Detections.empty(), image_id=9)) == 0


def test_supervision_detections_without_scores_or_classes_cannot_be_counted():
    for given_columns, missing in (
        ({"class_id": np.array([1, 2])}, "confidence"),
        ({"confidence": SCORES.numpy()}, "class_id"),
    ):
        with pytest.raises(InputError, match=f"must have a {missing} for each box, but got None"):
            Detections.from_supervision(supervision.Detections(BOXES.numpy(), **given_columns))


def test_a_torchvision_prediction_is_taken():
    prediction = {"boxes": BOXES, "labels": torch.tensor([18, 1]), "scores": SCORES.requires_grad_()}
    assert_same_images([Detections.from_torchvision(prediction)], [EXPECTED])


def test_a_transformers_prediction_is_taken_with_its_classes_renamed():
    prediction = {"scores": SCORES, "labels": torch.tensor([3, 5]), "boxes": BOXES}
    assert_same_images([Detections.from_transformers(prediction, category_ids={3: 18, 5: 1})], [EXPECTED])


def test_an_ultralytics_result_is_taken_with_its_image_size():
    image = Detections.from_ultralytics(ultralytics_result([16.0, 0.0]), category_ids=COCO_CATEGORY_IDS)
    assert_same_images([image], [EXPECTED])
    assert image.image_size == (640, 480)


@given(detections())
def test_coco_results_of_one_image_come_back_as_they_were(image):
    converted = Detections.from_coco(coco_results([image]), image_size=(1024, 1024), image_id=7)
    assert_same_images([converted], [image])


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([{"category_id": 1, "bbox": [0, 0, 1, 1]}], "results must have a score, but result 0 has only"),
        ([{"category_id": 1, "bbox": [0, 0, 1], "score": 1}], "bbox must be left, top, width, height, but result 0"),
        ([{"category_id": 1, "bbox": [9, 9, -1, 1], "score": 1}], r"sizes of at least 0, but got \[9.0, .* at index 0"),
        ([{"category_id": 1, "bbox": [9, 9, "a", 1], "score": 1}], "bbox and score must be numbers"),
        ([{"category_id": 1, "bbox": [9, 9, 1, 1], "score": 1, "image_id": i} for i in (1, 2)], "must be of one image"),
        ([{"category_id": 1, "bbox": [9, 9, 1, 1], "score": 1, "image_id": 8}], "that of the results, 8, but got 7"),
        ([{"category_id": 1, "bbox": [500, 300, 600, 400], "score": 1}], "these look like x1 y1 x2 y2"),
    ],
)
def test_wrong_coco_results_are_one_clear_line(results, message):
    with pytest.raises(InputError, match=message):
        Detections.from_coco(results, image_size=(640, 480), image_id=7)


def test_boxes_over_the_border_are_not_taken_for_corners():
    results = [{"category_id": 1, "bbox": [300, 200, 380, 320], "score": 1}]
    assert len(Detections.from_coco(results, image_size=(640, 480))) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Detections.from_ultralytics([ultralytics_result([1, 2])]), "but got a list of 1; pass one at a time"),
        (lambda: Detections.from_ultralytics(SimpleNamespace(boxes=None)), "must be an ultralytics Results with boxes"),
        (lambda: Detections.from_torchvision([{}]), "must be a dict that a torchvision .* got a list"),
        (lambda: Detections.from_torchvision({"boxes": []}), "prediction must have scores, but got only"),
        (lambda: Detections.from_torchvision(3), "must be a dict that a torchvision detector .* but got int"),
        (lambda: Detections.from_transformers(SimpleNamespace(logits=1)), "call .*post_process_object_detection"),
        (lambda: Detections.from_supervision(BOXES), "must be a supervision.Detections, but got Tensor without xyxy"),
    ],
)
def test_what_a_library_does_not_return_is_one_clear_line(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_class_without_a_category_is_an_error():
    with pytest.raises(InputError, match="category_ids must name a category for every class"):
        Detections.from_ultralytics(ultralytics_result([80.0, 0.0]), category_ids=COCO_CATEGORY_IDS)


def test_logits_of_a_detector_are_refused():
    with pytest.raises(InputError, match="apply a logistic"):
        Detections.from_torchvision({"boxes": BOXES, "labels": [1, 2], "scores": [3.5, -1.0]})


def test_the_categories_are_those_of_coco():
    assert len(COCO_CATEGORIES) == 80
    assert (min(COCO_CATEGORIES), max(COCO_CATEGORIES), category_id_of("toothbrush")) == (1, 90, 90)
    with pytest.raises(InputError, match="but got 'zebre'; did you mean 'zebra'"):
        category_id_of("zebre")


def test_wrong_types_are_type_errors_too():
    with pytest.raises(InputTypeError):
        Detections.from_torchvision(3)


YOLO_NAMES = dict(enumerate(COCO_CATEGORIES.values()))


def test_the_classes_of_a_yolo_model_are_not_read_as_cocos_ids():
    result = ultralytics_result([16.0, 0.0])  # dog and person; COCO's category 16 is a bird
    result.names = YOLO_NAMES
    assert_same_images([Detections.from_ultralytics(result)], [EXPECTED])
    result.names = {0: "bolt", 16: "nut"}
    assert Detections.from_ultralytics(result).category_ids.tolist() == [16, 0]
    named = supervision.Detections(
        BOXES.numpy(),
        confidence=SCORES.detach().numpy(),
        class_id=np.array([16, 0]),
        data={"class_name": np.array(["dog", "person"])},
    )
    assert_same_images([Detections.from_supervision(named)], [EXPECTED])
    named.data["class_name"] = np.array(
        ["dog", "bolt"]
    )  # of a detector of one's own: its other images may look like COCO
    with pytest.raises(InputError, match=r"must be COCO's, but got 'bolt'; give those of all classes .* class_names="):
        Detections.from_supervision(named)


@pytest.mark.parametrize("name", ["ultralytics", "supervision", "transformers"])
def test_classes_of_unknown_numbering_are_refused(name):
    output = {
        "ultralytics": ultralytics_result([16, 0]),
        "supervision": supervision.Detections(
            BOXES.numpy(), confidence=SCORES.detach().numpy(), class_id=np.array([16, 0])
        ),
        "transformers": {"scores": SCORES, "labels": torch.tensor([16, 0]), "boxes": BOXES},
    }[name]
    convert = getattr(Detections, f"from_{name}")
    with pytest.raises(
        InputError, match=r"must be numbered in a known way, .* class_names=.* or ids with category_ids="
    ):
        convert(output)
    assert_same_images([convert(output, class_names=YOLO_NAMES)], [EXPECTED])
    assert_same_images([convert(output, category_ids=COCO_CATEGORY_IDS)], [EXPECTED])


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"x1": [1, 0], "y1": [2, 0], "x2": [4, 9], "y2": [6, 9], "score": [0.75, 0.5], "category_id": [18, 1]}, {}),
        (
            {"xmin": [1, 0], "ymin": [2, 0], "xmax": [4, 9], "ymax": [6, 9], "confidence": [0.75, 0.5]}
            | {"class": [16, 0], "name": ["dog", "person"]},
            {},
        ),
        (
            {"x": [1, 0], "y": [2, 0], "w": [3, 9], "h": [4, 9], "score": [0.75, 0.5], "class_id": [16, 0]},
            {"class_names": YOLO_NAMES},
        ),
        (
            {"bbox": [[1, 2, 3, 4], [0, 0, 9, 9]], "score": [0.75, 0.5], "category": ["dog", "person"]},
            {"layout": "xywh"},
        ),
        (
            {"bbox": [[1, 2, 4, 6], [0, 0, 9, 9]], "score": [0.75, 0.5], "category": ["dog", "person"]},
            {"layout": "xyxy"},
        ),
    ],
    ids=["corners", "YOLOv5", "sizes", "bbox of sizes", "bbox of corners"],
)
def test_data_frames_are_taken(columns, options):
    image = Detections.from_dataframe(pandas.DataFrame(columns | {"image_id": [7, 7]}), **options)
    assert_same_images([image], [Detections(BOXES, SCORES, [18, 1], image_id=7)])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"bbox": [[1, 2, 4, 6]], "score": [1], "category": ["dog"]}, 'give layout="xyxy" or "xywh"'),
        ({"x1": [1], "score": [1], "category": ["dog"]}, "must have columns x1 y1 x2 y2, x y w h, or bbox"),
        ({"bbox": [[9, 9, 3, 3]], "category": ["dog"]}, "must have a column score or confidence"),
        ({"bbox": [[9, 9, 3, 3]], "score": [1]}, "must have a column category_id, category or class_id"),
        ({"bbox": [[9, 9, 3, 3]], "score": [1], "class_id": [16]}, "must be numbered in a known way"),
        ({"bbox": [[9, 9, 3, 3]] * 2, "score": [1] * 2, "category_id": [1] * 2, "image_id": [1, 2]}, "groupby"),
    ],
)
def test_data_frames_that_leave_a_doubt_are_refused(columns, message):
    with pytest.raises(InputError, match=message):
        Detections.from_dataframe(pandas.DataFrame(columns))


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ({"category_id": [16]}, {"class_names": {16: "dog"}}, 18),
        ({"category_id": [16]}, {"category_ids": {16: 18}}, 18),
        ({"category_id": [3], "category": ["dog"]}, {"class_names": {3: "dog", 4: "bolt"}}, 3),
        ({"category": ["nuts"]}, {"class_names": ["bolt", "nut"]}, 1),
        ({"category_id": [18], "category": ["Dogs"]}, {}, 18),
        ({"category_id": [5], "category": ["bolt"]}, {}, 5),
        ({"category": ["people"]}, {}, 1),
        ({"category": ["tvmonitor"]}, {}, 72),
        ({"class": ["Dogs"]}, {}, 18),
        ({"class": ["16"]}, {"class_names": YOLO_NAMES}, 18),
        ({"category_id": ["dog"]}, {}, 18),
    ],
)
def test_categories_of_a_data_frame_go_by_the_caller_then_by_ids_then_by_names(columns, options, expected):
    frame = pandas.DataFrame({"bbox": [[9, 9, 3, 3]], "score": [1.0]} | columns)
    assert Detections.from_dataframe(frame, **options).category_ids.tolist() == [expected]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            {"category_id": [16], "category": ["dog"]},
            {},
            "must name one category, but got 16 and 'dog', whose id in COCO is 18; leave out one of the columns",
        ),
        ({"category": ["dog"]}, {"category_ids": [1]}, "must have a column category_id or class_id for category_ids"),
        ({"category": ["dog"]}, {"class_names": ["bolt"]}, "must be among class_names, but got 'dog'; add it"),
        ({"class": ["bolt"]}, {}, "names of classes must be COCO's, but got 'bolt'; give those of all classes"),
    ],
)
def test_categories_of_a_data_frame_that_leave_a_doubt_are_refused(columns, options, message):
    with pytest.raises(InputError, match=message):
        Detections.from_dataframe(pandas.DataFrame({"bbox": [[9, 9, 3, 3]], "score": [1.0]} | columns), **options)


@pytest.mark.parametrize("column", IMAGE_COLUMNS)
def test_a_data_frame_names_its_image_as_tables_of_counts_do(column):
    two = {"bbox": [[9, 9, 3, 3]] * 2, "score": [1.0] * 2, "category": ["dog"] * 2, column: ["a.jpg", "b.jpg"]}
    frame = pandas.DataFrame(two)
    with pytest.raises(
        InputError, match=rf"must be of one image, but got 2: .*; pass those of frame.groupby\('{column}'"
    ):
        Detections.from_dataframe(frame)
    assert Detections.from_dataframe(frame[:1]).image_id == "a.jpg"
    assert Detections.from_dataframe(frame[:1].assign(frame=3, image_id=7)).image_id == 7


def test_an_estimator_converts_detections_of_other_libraries_or_says_how():
    named = supervision.Detections(
        BOXES.numpy(),
        confidence=SCORES.detach().numpy(),
        class_id=np.array([16, 0]),
        data={"class_name": np.array(["dog", "person"])},
    )
    assert small_estimator().predict(named).keys() == small_estimator().predict(EXPECTED).keys()
    named.data.clear()
    with pytest.raises(InputError, match="must be numbered in a known way"):
        small_estimator().predict(named)
    with pytest.raises(InputTypeError, match=r"but got dict; make them with .* from_torchvision"):
        small_estimator().predict({"boxes": []})


def test_an_estimator_knows_its_own_names_in_detections_of_supervision():
    estimator = CountEstimator.untrained({0: "nut", 7: "bolt", 1: "gear"})
    named = supervision.Detections(
        BOXES.numpy(),
        confidence=SCORES.detach().numpy(),
        class_id=np.array([0, 1]),
        data={"class_name": np.array(["Bolts", "dog"])},
    )
    same = Detections(BOXES, SCORES.detach(), [7, 18])
    assert estimator.predict(named, ["bolt"])["bolt"].to_dict() == estimator.predict(same, ["bolt"])["bolt"].to_dict()
    assert estimator.predict_many([named])[0].keys() == {7, 18}
    assert estimator.explain(named).keys() == {7, 18}
    assert estimator.total([named], ["bolt"])["bolt"].expected == estimator.total([same], [7])["bolt"].expected > 0
    named.data["class_name"] = np.array(["bolt", "person"])  # its id in COCO is that of gears here
    with pytest.raises(
        InputError, match=r"must be the estimator's \(nut, gear, bolt\) or COCO's, but got 'person'; give"
    ):
        estimator.predict(named)


def test_the_csv_of_supervision_is_read(tmp_path):
    named = supervision.Detections(
        BOXES.numpy(),
        confidence=SCORES.detach().numpy(),
        class_id=np.array([16, 0]),
        data={"class_name": np.array(["dog", "person"])},
    )
    for data, name in ((named, "named.csv"), (without_names(named), "numbers.csv")):
        with supervision.CSVSink(str(tmp_path / name)) as sink:
            sink.append(data, {"frame_index": 7})
    assert_same_images(list(read_detections(tmp_path / "named.csv")), [Detections(BOXES, SCORES, [18, 1], image_id=7)])
    with pytest.raises(InputError, match=r"category is missing from .*; add class_name, for class_id may be any"):
        list(read_detections(tmp_path / "numbers.csv"))


def without_names(detections):
    return supervision.Detections(detections.xyxy, confidence=detections.confidence, class_id=detections.class_id)
