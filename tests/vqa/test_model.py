"""The model against its equations, written out again for one question at a time."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from tallybox.vqa.config import ModelConfig
from tallybox.vqa.model import Batch, DataSizes, VqaModel, WordPacking, half_precision_states, scale_features
from tallybox.vqa.published import LAYERS
from tests.support.published_vqa import literal_answer
from tests.support.tolerances import BFLOAT16_GRADIENTS, BFLOAT16_STATES, ROUNDING
from tests.support.vqa_batches import MODELS, SIZES, random_batch, small_model


@pytest.mark.parametrize("name", MODELS)
def test_answers_and_glimpses_are_those_of_the_equations(name):
    model, batch = small_model(name).eval(), random_batch()
    counted = None
    if model.count is not None:

        def counted(glimpses, boxes):
            mask = torch.ones(1, len(boxes), dtype=torch.bool)
            return model.count(torch.from_numpy(glimpses)[None], torch.from_numpy(boxes)[None], mask)[0].numpy()

    with torch.no_grad():
        logits, glimpses = model(batch)
        weights = {
            f"{theirs}{name[len(ours) :]}": value
            for theirs, ours in LAYERS.items()
            for name, value in model.state_dict().items()
            if name.startswith(f"{ours}.")
        }
        for row in range(len(batch.mask)):
            real = batch.mask[row]
            words = batch.words[row, : batch.lengths[row]].tolist()
            photo = batch.features[row][real].numpy(), batch.boxes[row][real].numpy()
            expected, expected_glimpses = literal_answer(weights, words, *photo, int(real.sum()), counted)
            got = glimpses[row][batch.mask[row]].numpy()
            np.testing.assert_allclose(got, expected_glimpses, rtol=1e-10, atol=1e-12)
            # The softmax is computed in float32 whatever the rest is.
            np.testing.assert_allclose(logits[row].numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_neither_an_answer_nor_a_gradient(name):
    batch = random_batch()
    g = torch.Generator().manual_seed(5)
    padding = ~batch.mask.unsqueeze(-1)
    after_end = torch.arange(batch.words.shape[1]) >= batch.lengths[:, None]
    other = Batch(
        torch.where(padding, torch.randn(batch.features.shape, generator=g).double(), batch.features),
        torch.where(padding, torch.rand(batch.boxes.shape, generator=g).double().sort(-1).values, batch.boxes),
        batch.mask,
        torch.where(after_end, 3, batch.words),
        batch.lengths,
    )
    wider = Batch(
        nn.functional.pad(batch.features, (0, 0, 0, 2)),
        nn.functional.pad(batch.boxes, (0, 0, 0, 2)),
        nn.functional.pad(batch.mask, (0, 2)),
        nn.functional.pad(batch.words, (0, 3)),
        batch.lengths,
    )
    results = []
    for padded in (batch, other, wider):
        model = small_model(name, dropout=0.0)
        logits = model(padded)[0]
        logits.square().sum().backward()
        results.append({"logits": logits.detach(), **{n: p.grad for n, p in model.named_parameters()}})
    for result in results[1:]:
        for key, value in results[0].items():
            torch.testing.assert_close(result[key], value, rtol=1e-5, atol=1e-6, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_learns_the_count_components_included(name):
    model, batch = small_model(name, dropout=0.0), random_batch(16)
    model(batch)[0].square().sum().backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


def test_a_photo_without_proposals_gets_an_answer():
    batch = random_batch()
    batch = batch._replace(mask=torch.zeros_like(batch.mask))
    for name in MODELS:
        assert small_model(name).eval()(batch)[0].isfinite().all(), name


def test_sizes_of_the_paper():
    model = VqaModel(ModelConfig(), DataSizes(words=15_000, answers=3_000, features=2_048, proposals=100))
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert shapes["question.embedding.weight"] == (15_001, 300)
    assert shapes["question.gru.weight_hh_l0"] == (3 * 1_024, 1_024)
    assert shapes["attention.from_features.weight"] == (512, 2_048)
    assert "attention.from_features.bias" not in shapes
    assert shapes["attention.to_glimpses.weight"] == (2, 512)
    assert shapes["classifier.from_seen.weight"] == (1_024, 2 * 2_048)
    assert shapes["classifier.from_count.0.weight"] == (1_024, 11)
    assert shapes["classifier.to_answers.weight"] == (3_000, 1_024)
    assert shapes["count.counter.weight"] == (1, 8, 16)


def test_dropout_of_one_half_stands_before_the_gru_and_every_linear_layer_but_the_one_after_the_count():
    """Marks what dropout gave; then looks at what each layer takes."""
    model, batch = VqaModel(ModelConfig(question=7), SIZES).double(), random_batch()
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.5}
    dropped: list[torch.Tensor] = []
    taken: dict[str, bool] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Dropout):
            layer.register_forward_hook(lambda layer, args, out: dropped.append(out))
        if isinstance(layer, nn.Linear | nn.GRU):

            def look(layer, args, name=name):
                taken[name] = any(args[0] is out for out in dropped)

            layer.register_forward_pre_hook(look)
    model(batch)
    assert taken.pop("classifier.from_count.0") is False
    assert len(taken) == 7
    assert all(taken.values()), taken


def test_half_precision_features_are_scaled_or_left():
    features = torch.tensor([[300.0, 400.0], [0.0, 0.0]]).half()
    torch.testing.assert_close(scale_features(features, length=1), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
    torch.testing.assert_close(scale_features(features, length=5), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert torch.equal(scale_features(features, length=0), features.float())


def test_initial_weights_follow_glorot_and_an_unknown_word_says_nothing():
    model = VqaModel(ModelConfig(), DataSizes(words=50, answers=30, features=40, proposals=5))
    assert not model.question.embedding.weight[0].any()
    for name, parameter in model.named_parameters():
        if "bias" in name and "norm" not in name:
            assert not parameter.any(), name
    gate = model.question.gru.weight_hh_l0[:1024]
    assert gate.abs().max().item() == pytest.approx(math.sqrt(6 / 2048), rel=1e-3)
    assert isinstance(model.classifier.norm, nn.BatchNorm1d)


def test_packed_questions_have_the_states_of_padded_ones():
    model = small_model("baseline", dropout=0.0)
    lengths = torch.tensor([5, 4, 4, 2, 1, 1])
    words = torch.randint(1, SIZES.words, (6, 5), generator=torch.Generator().manual_seed(3))
    words = words * (torch.arange(5) < lengths[:, None])
    padded = model.question(words, lengths)
    for batch_sizes in ([6, 6, 6, 6, 6], [6, 4, 3, 3, 1]):  # as many as there may be; as many as there are
        packed = model.question(words, lengths, WordPacking(batch_sizes, words.device))
        torch.testing.assert_close(packed, padded, **ROUNDING[torch.float64]._asdict())


def test_half_precision_states_are_those_of_float32_but_for_rounding():
    encoder = small_model("baseline", dropout=0.0, dtype=torch.float32).question
    packing = WordPacking([6, 4, 3, 1], torch.device("cpu"))
    embedded = torch.rand(14, encoder.gru.input_size, generator=torch.Generator().manual_seed(3)) - 0.5
    expected = encoder.gru(PackedSequence(embedded, packing.batch_sizes))[0].data
    found = half_precision_states(embedded, packing, encoder.gru)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, **BFLOAT16_STATES._asdict())
    assert (found - expected).abs().max() > 0
    found.sum().backward()
    gradients = [parameter.grad.clone() for parameter in encoder.gru.parameters()]
    encoder.zero_grad()
    expected.sum().backward()
    for found_gradient, parameter in zip(gradients, encoder.gru.parameters(), strict=True):
        scale = parameter.grad.abs().max()
        torch.testing.assert_close(found_gradient / scale, parameter.grad / scale, **BFLOAT16_GRADIENTS._asdict())
