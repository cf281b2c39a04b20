import numpy as np
import pytest
import torch
from hypothesis import given

from tallybox import Detections, TallyboxError
from tallybox.errors import InputError, InputTypeError
from tests.support.detection_sets import CATEGORY_IDS, detections

BOX = [0.0, 0.0, 10.0, 10.0]


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        list,
        torch.tensor,
        lambda values: torch.tensor(values, dtype=torch.bfloat16, requires_grad=True),
        lambda values: torch.tensor(values, dtype=torch.float64),
    ],
    ids=["numpy", "list", "tensor", "bfloat16-with-gradient", "float64"],
)
def test_boxes_and_scores_may_be_anything_array_like(convert):
    image = Detections(convert([BOX, BOX]), convert([0.5, 0.25]), torch.tensor([1, 2]), (640, 480), "a.jpg")
    assert (image.boxes.dtype, image.scores.dtype, image.category_ids.dtype) == (np.float32, np.float32, np.int64)
    assert image.boxes.tolist() == [BOX, BOX]
    assert image.scores.tolist() == [0.5, 0.25]
    assert (len(image), image.image_size, image.image_id) == (2, (640, 480), "a.jpg")


def test_an_image_without_detections_has_no_boxes_of_four_numbers():
    assert Detections([], [], []).boxes.shape == (0, 4)
    assert Detections.empty(9, (10, 20)).image_size == (10, 20)


def test_category_ids_are_whole_numbers_of_64_bits():
    assert Detections([BOX], [0.5], [17.0]).category_ids.tolist() == [17]
    for wrong in (1.5, "dog", 2**63, 2**64, 1e30, float("inf")):
        with pytest.raises(InputTypeError, match="category_ids"):
            Detections([BOX], [0.5], [wrong])


@pytest.mark.parametrize(
    ("boxes", "scores", "message"),
    [
        ([BOX], [float("nan")], "index 0: score nan"),
        ([BOX], [-2.5], "score -2.5.*logits"),
        ([BOX], [97.0], "score 97.*percentages"),
        ([[0, 0, float("nan"), 1]], [0.5], r"index 0: box \[0, 0, nan, 1\]"),
        ([[0, 0, 1e39, 1]], [0.5], "finite"),
        ([[50, 60, 20, 30]], [0.5], r"box \[50"),
        ([BOX], [0.5, 0.5], r"scores .*\[1\].*\[2\]"),
        ([BOX, BOX], [0.5, 0.5], r"category_ids .*\[2\].*\[1\]"),
        ([[BOX]], [0.5], r"boxes .*\[1, 1, 4\]"),
        ([["a", 2, 3, 4]], [0.5], "boxes .*list"),
    ],
)
def test_a_wrong_box_or_score_is_one_clear_line(boxes, scores, message):
    with pytest.raises(InputError, match=message) as raised:
        Detections(boxes, scores, [1])
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, TallyboxError)


@pytest.mark.parametrize("size", [(0, 5), (5, 2**31), 7, (1, 2, 3), "ab"])
def test_an_image_size_is_a_width_and_a_height(size):
    with pytest.raises(InputError, match="image_size"):
        Detections([BOX], [0.5], [1], image_size=size)


def test_an_image_id_is_a_number_or_a_text():
    assert type(Detections([BOX], [0.5], [1], image_id=np.int64(7)).image_id) is int
    for wrong in (1.5, True, (1,)):
        with pytest.raises(InputTypeError, match="image_id must be a whole number or a text"):
            Detections([BOX], [0.5], [1], image_id=wrong)


def test_a_score_that_misses_one_by_rounding_is_one():
    assert Detections([BOX], [np.nextafter(np.float32(1), np.float32(2))], [1]).scores.tolist() == [1.0]


@given(detections())
def test_categories_take_the_image_apart_and_lose_nothing(image):
    parts = [image.of_category(category_id) for category_id in CATEGORY_IDS]
    assert sum(len(part) for part in parts) == len(image)
    assert all((part.image_id, part.image_size) == (image.image_id, image.image_size) for part in parts)
    best = {c: part.scores.max().item() for c, part in zip(CATEGORY_IDS, parts, strict=True) if len(part)}
    assert image.best_scores() == best
