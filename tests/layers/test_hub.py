import pytest
import torch

from tests.support.problems import random_problem

hub = pytest.importorskip("tallybox.hub")


@pytest.mark.parametrize("name", ["Counter", "PresenceCounter"])
def test_a_layer_comes_back_from_a_folder(name, tmp_path):
    layer = getattr(hub, name)(5, heads=2, segments=8, logits=True)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.rand_like(parameter))
    layer.save_pretrained(tmp_path)
    again = getattr(hub, name).from_pretrained(tmp_path)
    assert repr(again) == repr(layer)
    problem = random_problem(3, proposals=7)
    inputs = problem.attention.float(), problem.boxes.float()
    assert torch.equal(again(*inputs), layer(*inputs))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors"]
