import pytest
import torch

from tallybox.errors import InputError
from tallybox.vqa.config import ModelConfig
from tests.support.problems import random_problem
from tests.support.vqa_batches import SIZES, SMALL, random_batch

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


@pytest.mark.parametrize("name", ["baseline", "presence"])
def test_a_vqa_model_comes_back_with_its_vocabulary(name, tmp_path):
    config = ModelConfig(name=name, attention_dropout=0.1, **SMALL)
    model = hub.VqaModel(config, SIZES, ["how", "many"], ["1"]).eval()
    model.save_pretrained(tmp_path)
    again = hub.VqaModel.from_pretrained(tmp_path).eval()
    assert (again.config, again.sizes, again.words, again.answers) == (config, SIZES, ("how", "many"), ("1",))
    batch = random_batch()
    batch = batch._replace(features=batch.features.float(), boxes=batch.boxes.float())
    assert torch.equal(again(batch)[0], model(batch)[0])


def test_a_file_does_not_decide_which_code_is_run(tmp_path):
    hub.VqaModel(ModelConfig(name="counter", **SMALL), SIZES).save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"counter"', '"examples.soft_nms:SoftNms"'))
    with pytest.raises(InputError, match="SoftNms"):
        hub.VqaModel.from_pretrained(tmp_path)
