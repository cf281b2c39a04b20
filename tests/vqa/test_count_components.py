import pytest
import torch
from torch import nn

from tallybox.errors import InputError
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.components import SuppressedCount, count_component
from tallybox.vqa.config import ModelConfig
from tallybox.vqa.training import train
from tests.support.vqa_batches import random_batch
from tests.support.vqa_tiny import CPU, tiny_config, tiny_data


def test_the_number_left_is_one_hot_and_scored_by_the_mean_of_the_glimpses():
    # Two chains of three boxes: keeping the middle one leaves one box, keeping the ends leaves two.
    chain = torch.tensor([[0.0, 0.0, 3.0, 1.0], [0.9, 0.0, 3.9, 1.0], [1.8, 0.0, 4.8, 1.0]])
    boxes = torch.cat((chain, chain + 100)).expand(2, 6, 4)
    middle_first = torch.tensor([[0.0, 0.0], [9.0, -3.0], [1.0, 0.0]])
    ends_first = torch.tensor([[3.0, 0.0], [9.0, -9.0], [1.0, 0.0]])
    glimpses = torch.stack((middle_first.repeat(2, 1), torch.cat((middle_first, ends_first))))
    mask = torch.ones(2, 6, dtype=torch.bool)
    count = SuppressedCount(6)(glimpses, boxes, mask)
    assert count.shape == (2, 7)
    assert count.argmax(-1).tolist() == [2, 3]
    assert count.sum(-1).tolist() == [1, 1]
    mask[0, 3:] = False
    assert SuppressedCount(6)(glimpses, boxes, mask).argmax(-1).tolist() == [1, 3]


def test_thresholds_of_the_configuration_decide_what_is_left():
    boxes = torch.tensor([[0.0, 0.0, 3.0, 1.0], [0.9, 0.0, 3.9, 1.0], [50.0, 0.0, 53.0, 1.0]]).expand(
        1, 3, 4
    )  # IoU 0.54
    glimpses = torch.tensor([[[1.0, 1.0], [0.0, 0.0], [-2.0, 0.0]]])  # scores of 0.73, 0.5 and 0.27
    mask = torch.ones(1, 3, dtype=torch.bool)
    for iou, score, left in ((0.5, 0.0, 2), (0.6, 0.0, 3), (0.5, 0.3, 1), (0.6, 0.5, 2), (0.6, 0.6, 1)):
        config = ModelConfig(name="nms", nms_iou_threshold=iou, nms_score_threshold=score)
        assert count_component(config, max_proposals=3)(glimpses, boxes, mask).argmax().item() == left


@pytest.mark.parametrize(("name", "features"), [("counter", 6), ("presence", 7), ("nms", 21)])
def test_each_says_how_many_features_it_gives(name, features):
    component = count_component(ModelConfig(name=name, max_objects=5), max_proposals=20)
    batch = random_batch()
    assert component.features == features
    assert component(batch.features, batch.boxes, batch.mask).shape == (4, features)


def test_the_counting_layers_take_the_first_glimpse_through_a_logistic():
    batch = random_batch()
    for name in ("counter", "presence"):
        component = count_component(ModelConfig(name=name), max_proposals=9)
        got = component(batch.features, batch.boxes, batch.mask)
        component.counter.logits = False
        expected = component.counter(batch.features[..., 0].sigmoid(), batch.boxes, batch.mask)
        torch.testing.assert_close(got, expected)
    assert count_component(ModelConfig(name="baseline"), 9) is None


class SumOfScores(nn.Module):
    """A component of one's own: the sum of scores, and how many there are."""

    name = "sum"

    def __init__(self, max_objects):
        super().__init__()

    def forward(self, scores, boxes, mask):
        kept = scores * mask
        return torch.stack((kept.sum(-1), mask.sum(-1).to(scores.dtype)), -1)


def test_a_component_of_one_s_own_is_trained_and_named_again_to_be_loaded(tmp_path):
    spec = f"{__name__}:SumOfScores"
    config = tiny_config(spec, epochs=2)
    train(tiny_data(), tmp_path, config, device=CPU)
    with pytest.raises(InputError, match="SumOfScores"):
        load_model(tmp_path)  # a file alone does not decide which code is run
    model, _ = load_model(tmp_path, spec)
    assert model.count.features == 2
    glimpses, boxes, mask = torch.zeros(1, 3, 2), torch.zeros(1, 3, 4), torch.tensor([[True, True, False]])
    assert model.count(glimpses, boxes, mask).tolist() == [[1.0, 2.0]]


def test_a_factor_sharpens_the_logits_of_each_component():
    glimpses, boxes, mask = torch.randn(2, 6, 2), torch.rand(2, 6, 4).sort(-1).values, torch.ones(2, 6, dtype=bool)
    for name in ("counter", "presence"):
        plain, sharp = (count_component(ModelConfig(name=name, segments=4, sharpness=factor), 6) for factor in (1, 4))
        assert any(4 in parameter.shape for parameter in plain.counter.parameters())
        torch.testing.assert_close(sharp(glimpses, boxes, mask), plain(4 * glimpses, boxes, mask))


@pytest.mark.parametrize("name", ["counter", "presence"])
def test_level_mean_ignores_the_level_of_a_photo_s_logits_and_masked_regions(name):
    batch = random_batch()
    component = count_component(ModelConfig(name=name, level="mean", sharpness=4.0), max_proposals=9)
    with torch.no_grad():
        component.bias += 0.3
    expected = component(batch.features, batch.boxes, batch.mask)
    constants = torch.tensor([-20.0, -1.0, 0.5, 30.0]).view(4, 1, 1)
    got = component(batch.features + constants, batch.boxes, batch.mask)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert not batch.mask.all()
    masked = batch.features.masked_fill(~batch.mask.unsqueeze(-1), 1e4)
    torch.testing.assert_close(component(masked, batch.boxes, batch.mask), expected)


def test_a_model_sees_more_proposals_than_it_was_made_for():
    batch = random_batch(proposals=9)
    far_apart = torch.arange(9.0).view(1, 9, 1) * 10 + torch.tensor([0.0, 0.0, 1.0, 1.0])
    count = SuppressedCount(4)(batch.features, far_apart.expand(4, 9, 4), batch.mask)
    assert count.argmax(-1)[0] == 4
