import pytest
import torch

from tallybox.counter.published import drop_fixed_zero, read_published_weight
from tallybox.errors import InputError
from tests.support.problems import random_weight
from tests.support.reference_cases import published_state_dict


def trained_weights() -> torch.Tensor:
    weights = random_weight(8, 17, seed=0)
    weights[:, 0] = 0
    return weights


@pytest.mark.parametrize("prefix", ["", "module.", "counter.", "module.classifier.counter."])
@pytest.mark.parametrize("entries", [16, 17])
@pytest.mark.parametrize("activations", [8, 16])
def test_the_eight_used_activations_are_read_from_any_layout(activations, entries, prefix):
    weights = trained_weights()
    checkpoint = published_state_dict(weights, activations=activations, entries=entries, prefix=prefix)
    assert torch.equal(read_published_weight(checkpoint), weights[:, 1:])


def test_other_entries_of_a_larger_checkpoint_are_ignored():
    checkpoint = {"text.weight": torch.ones(3), "stuff.0.weight": torch.ones(2)}
    checkpoint |= published_state_dict(trained_weights(), prefix="counter.")
    assert torch.equal(read_published_weight(checkpoint), trained_weights()[:, 1:])


def test_a_checkpoint_without_a_counter_is_an_error():
    with pytest.raises(InputError, match=r"must hold one published counter \(f\.0\.weight .* got none among 1 keys"):
        read_published_weight({"text.weight": torch.ones(3)})


def test_a_checkpoint_with_two_counters_is_an_error_that_names_them():
    two = published_state_dict(trained_weights(), prefix="a.") | published_state_dict(trained_weights(), prefix="b.")
    with pytest.raises(InputError, match=r"one published counter.*'a\.', 'b\.'.*pass the counter's part alone"):
        read_published_weight(two)


def test_a_missing_activation_is_an_error_that_names_it():
    checkpoint = published_state_dict(trained_weights(), prefix="counter.")
    del checkpoint["counter.f.5.weight"]
    with pytest.raises(InputError, match=r"must hold counter\.f\.5\.weight, but it is missing"):
        read_published_weight(checkpoint)


def test_activations_of_different_length_with_the_fixed_zero_or_without_mix():
    checkpoint = published_state_dict(trained_weights())
    checkpoint["f.3.weight"] = checkpoint["f.3.weight"][1:]
    assert torch.equal(read_published_weight(checkpoint), trained_weights()[:, 1:])


@pytest.mark.parametrize("shape", [(5,), (18,), (1, 17), ()])
def test_a_weight_of_another_shape_is_an_error_that_states_it(shape):
    with pytest.raises(InputError, match=r"f\.2\.weight must have 16 or 17 entries, but got shape \["):
        drop_fixed_zero("f.2.weight", torch.ones(shape))


def test_a_long_weight_that_does_not_start_with_zero_is_an_error():
    with pytest.raises(InputError, match=r"f\.0\.weight must start with the fixed zero.*but got 1\.0"):
        drop_fixed_zero("f.0.weight", torch.ones(17))
