import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from PIL.Image import Resampling

from tallybox.detections.categories import COCO_CATEGORIES, COCO_CATEGORY_IDS
from tallybox.errors import InputError, TallyboxError
from tallybox.photos.detector import detector_of
from tests.support.onnx_models import torch_outputs, write_onnx
from tests.support.small_photos import small_photos, with_fewer_pixels

FRUIT = {0: "pear", 1: "mug", 2: "fig"}


def letterboxed(photo, resized_wh, input_wh):
    """Return the photo as documented: resized by a bilinear filter, at the top left of grey, [1, 3, H, W]."""
    canvas = Image.new("RGB", input_wh, (114, 114, 114))
    canvas.paste(photo.image.resize(resized_wh, Resampling.BILINEAR))
    return torch.from_numpy(np.array(canvas)).permute(2, 0, 1)[None].float() / 255


def test_boxes_are_those_of_the_same_equations_in_torch(tmp_path):
    detector = detector_of(f"onnx:{write_onnx(tmp_path / 'fruit.onnx')}", device="cpu")
    assert detector.categories == FRUIT
    for photo, found in zip(small_photos(), detector.detect(small_photos()), strict=True):
        # The input's size is free: the longer side becomes 640, and 480 is a multiple of 32.
        resized_wh = (640, 480) if photo.size_wh == (64, 48) else (480, 640)
        boxes, scores = torch_outputs(letterboxed(photo, resized_wh, resized_wh), 3)
        best, labels = scores[0].max(1)
        order = best.argsort(descending=True, stable=True)[:300]
        assert len(found) == 300
        np.testing.assert_allclose(found.scores, best[order], atol=2e-5)
        expected = (boxes[0] / 10).clamp(max=torch.tensor(photo.size_wh * 2))
        by_box = {tuple(np.round(box, 2)): label for box, label in zip(expected.numpy(), labels.tolist(), strict=True)}
        known = [by_box.get(tuple(np.round(box, 2))) for box in found.boxes]
        agree = [label == category for label, category in zip(known, found.category_ids, strict=True)]
        assert np.mean(agree) > 0.95  # rounding to 0.01 pixels moves some boxes
        assert (found.image_id, found.image_size) == (photo.name, photo.size_wh)


def test_a_fixed_input_and_a_score_for_every_class(tmp_path):
    path = write_onnx(tmp_path / "coco.onnx", layout="scores", classes=80, input_shape=(1, 3, 32, 96), names=None)
    detector = detector_of(f"onnx:{path}", device="cpu")
    assert detector.categories == COCO_CATEGORIES
    photos = small_photos()
    for photo, found in zip(photos, detector.detect(photos), strict=True):
        scale = min(96 / photo.size_wh[0], 32 / photo.size_wh[1])
        resized_wh = (round(photo.size_wh[0] * scale), round(photo.size_wh[1] * scale))
        assert resized_wh in ((43, 32), (24, 32))
        boxes, scores = torch_outputs(letterboxed(photo, resized_wh, (96, 32)), 80)
        values, order = scores[0].flatten().sort(descending=True, stable=True)
        np.testing.assert_allclose(found.scores, values[:300], atol=1e-5)
        stretch = np.tile(np.array(photo.size_wh) / np.array(resized_wh), 2)
        best = boxes[0, order[0] // 80].numpy() * stretch
        np.testing.assert_allclose(found.boxes[0], best.clip(0, np.tile(photo.size_wh, 2)), atol=1e-3)
        assert found.category_ids[0] == COCO_CATEGORY_IDS[int(order[0] % 80)]


def test_boxes_are_in_the_photos_own_pixels(tmp_path):
    detector = detector_of(f"onnx:{write_onnx(tmp_path / 'fruit.onnx', input_shape=('B', 3, 64, 64))}", device="cpu")
    (photo,) = small_photos([(64, 48)])
    (found,), (twice,) = detector.detect([photo]), detector.detect([with_fewer_pixels(photo)])
    np.testing.assert_allclose(twice.boxes, 2 * found.boxes, rtol=1e-5)
    assert detector.detect([]) == []


@pytest.mark.parametrize("names", ["{0: 'pear', 1: 'mug', 2: 'fig'}", '["pear", "mug", "fig"]'])
def test_names_may_be_written_as_ultralytics_does(tmp_path, names):
    assert detector_of(f"onnx:{write_onnx(tmp_path / 'a.onnx', names=names)}").categories == FRUIT


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"output_names": ("output0", "scores", "labels")}, "output0 .*ultralytics:"),
        ({"input_shape": (2, 3, "H", "W")}, r"pixels \[2, 3, 'H', 'W'\]"),
        ({"names": None, "layout": "scores"}, "3 classes"),
        ({"names": "apple"}, "names .*'apple'"),
    ],
)
def test_another_layout_is_one_line_with_what_the_file_has(tmp_path, options, said):
    with pytest.raises(InputError, match=said) as caught:
        detector_of(f"onnx:{write_onnx(tmp_path / 'odd.onnx', **options)}")
    assert "odd.onnx" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_onnx_file_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"none\.onnx"):
        detector_of(f"onnx:{tmp_path / 'none.onnx'}")
    (tmp_path / "text.onnx").write_text("no model")
    whole = onnx.load(write_onnx(tmp_path / "whole.onnx")).SerializeToString()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    for name in ("text.onnx", "cut.onnx"):
        with pytest.raises(TallyboxError, match=name) as caught:
            detector_of(f"onnx:{tmp_path / name}")
        assert "\n" not in str(caught.value)
