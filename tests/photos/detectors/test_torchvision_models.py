import numpy as np
import pytest
import torch

from tallybox.errors import TallyboxError
from tallybox.files import import_optional
from tallybox.photos.detectors.torchvision_models import TorchvisionDetector, suppress_little
from tests.support.small_photos import small_photos, with_fewer_pixels


@pytest.fixture
def models():
    try:
        return import_optional("torchvision.models", needed_for="this detector", install="torchvision")
    except TallyboxError as error:
        pytest.skip(str(error))


class Always(torch.nn.Module):
    """Returns one box for each image, in the form of torchvision's detectors."""

    def forward(self, images):
        assert not self.training
        assert all(image.shape[0] == 3 and image.min() >= 0 and image.max() <= 1 for image in images)
        one = {"boxes": torch.tensor([[1.0, 2, 30, 40]]), "labels": torch.tensor([18]), "scores": torch.tensor([0.5])}
        return [one for _ in images]


def test_a_real_model_gives_its_own_boxes(models, monkeypatch):
    def with_random_weights(name, weights):
        torch.manual_seed(0)
        return build(name, weights=None, weights_backbone=None, num_classes=len(weights.meta["categories"]))

    build = models.get_model
    monkeypatch.setattr(models, "get_model", with_random_weights)
    detector = TorchvisionDetector.load("ssdlite320_mobilenet_v3_large", device="cpu")
    assert len(detector.categories) == 80
    (photo,) = small_photos([(64, 48)])
    pixels = torch.from_numpy(np.array(photo.image)).permute(2, 0, 1).float() / 255
    with torch.inference_mode():
        (expected,) = detector.model([pixels])
    named = np.isin(expected["labels"], list(detector.categories))
    (found,) = detector.detect([photo])
    assert len(found) == named.sum() > 0
    np.testing.assert_allclose(found.boxes, expected["boxes"][named], rtol=1e-5)
    np.testing.assert_array_equal(found.category_ids, expected["labels"][named])


@pytest.mark.parametrize("name", ["fasterrcnn_mobilenet_v3_large_320_fpn", "retinanet_resnet50_fpn"])
def test_models_suppress_little(models, name):
    model = models.get_model(name, weights=None, weights_backbone=None)
    suppress_little(model)
    owner = getattr(model, "roi_heads", model)
    assert (owner.nms_thresh, owner.score_thresh) == (0.9, 0.01)


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
