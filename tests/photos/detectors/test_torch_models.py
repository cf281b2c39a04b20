import numpy as np
import torch

from tallybox.photos.detectors import TorchvisionDetector
from tests.support.small_photos import small_photos, with_fewer_pixels


class Always(torch.nn.Module):
    """Returns one box for each image, in the form of torchvision's detectors."""

    def forward(self, images):
        assert not self.training
        assert all(image.shape[0] == 3 and image.min() >= 0 and image.max() <= 1 for image in images)
        one = {"boxes": torch.tensor([[1.0, 2, 30, 40]]), "labels": torch.tensor([18]), "scores": torch.tensor([0.5])}
        return [one for _ in images]


def test_boxes_are_in_the_photos_own_pixels_and_labels_are_cocos():
    detector = TorchvisionDetector(Always(), device="cpu")
    (photo,) = small_photos([(64, 48)])
    one, two = detector.detect([photo, with_fewer_pixels(photo)])
    np.testing.assert_array_equal(one.boxes, [[1, 2, 30, 40]])
    np.testing.assert_array_equal(two.boxes, [[2, 4, 60, 80]])
    assert one.category_ids.tolist() == [18]
    named = TorchvisionDetector(Always(), names={18: "apple tree"}, device="cpu")
    assert named.categories == {18: "apple tree"}
    assert detector.detect([]) == []
