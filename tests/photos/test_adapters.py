from __future__ import annotations

import numpy as np
import pytest
import torch

from tallybox.errors import InputError, InputTypeError
from tallybox.photos import Detector, Photo
from tallybox.photos.adapters import TorchvisionDetector, TransformersDetector
from tests.support.photos import gradient

PHOTO = Photo(gradient(64, 48), (64, 48), "one.jpg")
REDUCED = Photo(gradient(64, 48), (128, 96), "two.jpg")


class LikeTorchvision(torch.nn.Module):
    """Takes a list of [3, H, W] in [0, 1] and returns the dicts that torchvision's detectors return."""

    def forward(self, images):
        assert all(image.shape == (3, 48, 64) and image.min() >= 0 and image.max() <= 1 for image in images)
        assert not self.training
        one = {"boxes": torch.tensor([[1.0, 2, 30, 40]]), "labels": torch.tensor([18]), "scores": torch.tensor([0.5])}
        return [one for _ in images]


def like_transformers(images, threshold):
    assert threshold == 0.01
    box = {"xmin": 1, "ymin": 2, "xmax": 30, "ymax": 40}
    return [[{"score": 0.5, "label": "dog", "box": box}, {"score": 0.1, "label": "N/A", "box": box}] for _ in images]


@pytest.mark.parametrize(
    "build",
    [lambda: TorchvisionDetector(LikeTorchvision(), device="cpu"), lambda: TransformersDetector(like_transformers)],
)
def test_boxes_are_in_pixels_of_the_photo(build):
    detector: Detector = build()
    one, two = detector.detect([PHOTO, REDUCED])
    np.testing.assert_array_equal(one.boxes, [[1, 2, 30, 40]])
    np.testing.assert_array_equal(two.boxes, [[2, 4, 60, 80]])
    assert one.category_ids.tolist() == [18]
    assert (one.image_id, one.image_size) == ("one.jpg", (64, 48))
    assert detector.detect([]) == []


def test_labels_are_renamed():
    assert TorchvisionDetector(LikeTorchvision(), category_ids={18: 7}).detect([PHOTO])[0].category_ids.tolist() == [7]
    named = TransformersDetector(like_transformers, category_ids={"dog": 3})
    assert named.detect([PHOTO])[0].category_ids.tolist() == [3]


def test_what_cannot_be_used_is_one_line():
    with pytest.raises(InputTypeError, match="model must be a torchvision detector, but got str"):
        TorchvisionDetector("fasterrcnn")
    with pytest.raises(InputTypeError, match="pipeline must be"):
        TransformersDetector("detr")
    with pytest.raises(InputError, match="knows none of"):
        TransformersDetector(like_transformers, category_ids={"cat": 3}).detect([PHOTO])
