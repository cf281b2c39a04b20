import numpy as np
import pytest
import torch

from tallybox.errors import TallyboxError
from tallybox.files import import_optional
from tallybox.photos.specs import detector_of
from tests.support.small_photos import small_photos, with_fewer_pixels


@pytest.fixture
def ultralytics(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path))
    try:
        library = import_optional("ultralytics", needed_for="this detector", install="ultralytics")
        library.YOLO  # noqa: B018  # imports the rest
    except (TallyboxError, RuntimeError) as error:
        pytest.skip(str(error))
    return library


def test_a_real_model_gives_its_own_boxes(ultralytics, tmp_path):
    torch.manual_seed(0)
    model = ultralytics.YOLO("yolov8n.yaml")
    with torch.no_grad():
        for branch in model.model.model[-1].cv3:
            branch[-1].bias += 10  # random weights believe in nothing
    model.save(tmp_path / "random.pt")
    detector = detector_of(f"ultralytics:{tmp_path / 'random.pt'}", device="cpu")
    (photo,) = small_photos([(64, 48)])
    loaded = ultralytics.YOLO(tmp_path / "random.pt")
    (expected,) = loaded.predict([photo.image], conf=0.01, iou=0.9, device="cpu", verbose=False)
    (found,), (twice,) = detector.detect([photo]), detector.detect([with_fewer_pixels(photo)])
    assert len(found) == len(expected.boxes) > 0
    np.testing.assert_allclose(found.boxes, expected.boxes.xyxy, atol=1e-3)
    np.testing.assert_allclose(found.scores, expected.boxes.conf, atol=1e-5)
    np.testing.assert_allclose(twice.boxes, 2 * found.boxes, rtol=1e-4, atol=1e-3)


def test_what_cannot_be_loaded_is_one_line(ultralytics, tmp_path):
    (tmp_path / "text.pt").write_text("no model")
    with pytest.raises(TallyboxError, match=r"Cannot load .*text\.pt"):
        detector_of(f"ultralytics:{tmp_path / 'text.pt'}")
