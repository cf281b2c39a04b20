import pickle

import numpy as np
import onnxruntime
import pytest
import torch

from tallybox.photos import PicoDet
from tallybox.photos.network import STRIDES, CpuNetwork, load_picodet_network
from tests.support.shared_data import models_folder
from tests.support.tolerances import DETECTOR_MAPS


@pytest.mark.parametrize(
    "load",
    [load_picodet_network, CpuNetwork, lambda: pickle.loads(pickle.dumps(PicoDet(device="cpu"))).network],
    ids=["PyTorch", "ONNX Runtime", "ONNX Runtime in another process"],
)
@pytest.mark.parametrize(("height", "width"), [(512, 640), (64, 64), (640, 128)])
def test_maps_are_those_of_the_published_onnx_file(height, width, load):
    session = onnxruntime.InferenceSession(models_folder() / "picodet_s.onnx")
    images = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(height))
    with torch.inference_mode():
        maps = load()(images)
    for stride, (class_logits, quality_logits, distance_logits) in zip(STRIDES, maps, strict=True):
        scores, distances = session.run([f"scores_{stride}", f"distances_{stride}"], {"image": images.numpy()})
        found = (class_logits.sigmoid() * quality_logits.sigmoid()).sqrt().numpy()
        assert found.shape == (2, 80, height // stride, width // stride)
        np.testing.assert_allclose(found, scores, **DETECTOR_MAPS._asdict())
        np.testing.assert_allclose(distance_logits.numpy(), distances, **DETECTOR_MAPS._asdict())
