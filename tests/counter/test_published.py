import pytest
import torch

from tallybox.counter.published import read_published_weight
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


def test_a_checkpoint_without_a_counter_is_an_error():
    with pytest.raises(InputError, match="published counter"):
        read_published_weight({"text.weight": torch.ones(3)})


def test_a_checkpoint_with_two_counters_is_an_error_that_names_them():
    two = published_state_dict(trained_weights(), prefix="a.") | published_state_dict(trained_weights(), prefix="b.")
    with pytest.raises(InputError, match=r"'a\.', 'b\.'"):
        read_published_weight(two)


def test_activations_of_different_length_with_the_fixed_zero_or_without_mix():
    checkpoint = published_state_dict(trained_weights())
    checkpoint["f.3.weight"] = checkpoint["f.3.weight"][1:]
    assert torch.equal(read_published_weight(checkpoint), trained_weights()[:, 1:])
