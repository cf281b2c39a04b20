"""When values are looked at: by default only where that costs no waiting."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tallybox import Counter, check_values
from tallybox.errors import InputError
from tests.support.problems import random_boxes
from tests.support.torch_warnings import TORCH_WARNS_ABOUT_ITSELF

pytestmark = TORCH_WARNS_ABOUT_ITSELF

BAD_ATTENTION = torch.tensor([0.5, 3.0])
BOXES = random_boxes(2, seed=0).float()


def values_are_checked() -> bool:
    try:
        Counter(2)(BAD_ATTENTION, BOXES)
    except InputError:
        return True
    return False


def test_tensors_elsewhere_are_not_looked_at_by_default(layer):
    """A meta tensor has no values: looking at one would raise."""
    counter = layer(3, heads=2).to("meta")
    attention = torch.empty(2, 5, device="meta")
    features = counter(attention, torch.empty(2, 5, 4, device="meta"), torch.empty(2, 5, device="meta") > 0)
    assert features.shape == (2, 8 if layer is Counter else 10)


def test_always_looks_wherever_they_are():
    with check_values("always"), pytest.raises(RuntimeError, match="meta"):
        Counter(3).to("meta")(torch.empty(2, 5, device="meta"), torch.empty(2, 5, 4, device="meta"))


def test_shapes_are_checked_in_every_mode():
    with check_values("never"), pytest.raises(InputError, match="boxes must have shape"):
        Counter(2)(BAD_ATTENTION, BOXES[:, :3])


def test_a_block_restores_the_mode_around_it_also_after_an_error():
    with check_values("never"):
        with check_values("always"):
            with check_values("never"):
                assert not values_are_checked()
            with pytest.raises(KeyError), check_values("never"):
                raise KeyError
            assert values_are_checked()
        assert not values_are_checked()
    assert values_are_checked()


def test_a_block_holds_for_its_own_thread_alone():
    with ThreadPoolExecutor(1) as pool, check_values("never"):
        assert pool.submit(values_are_checked).result()
        assert not values_are_checked()


def test_an_unknown_mode_is_an_error_and_changes_nothing():
    with pytest.raises(InputError, match="'sometimes'"), check_values("sometimes"):
        pass
    assert values_are_checked()


@pytest.mark.parametrize("mode", ["auto", "always"])
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_code_does_not_look_at_values(mode):
    compiled = torch.compile(Counter(2), fullgraph=True, backend="eager")
    with check_values(mode):
        assert compiled(BAD_ATTENTION, BOXES).isfinite().all()
