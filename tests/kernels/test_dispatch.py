import pytest
import torch

from tallybox.errors import BackendError, InputError
from tallybox.kernels import dispatch
from tallybox.kernels.dispatch import BackendWarning, choose_backend


def test_the_layer_refuses_an_unknown_backend_when_it_is_built(layer):
    with pytest.raises(InputError, match=r"backend .*gpu"):
        layer(backend="gpu")


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"device": torch.device("meta")}, "computes on cuda, but the inputs are on meta"),
        ({"dtype": torch.float64}, "computes in float32, but the inputs are float64"),
        ({"boxes": 513}, "takes at most 512 boxes an image, but got 513"),
    ],
)
def test_a_backend_that_is_named_but_cannot_run_is_an_error_with_the_reason(inputs, reason):
    usual = {"device": torch.device("cuda"), "dtype": torch.float32, "boxes": 10}
    with pytest.raises(BackendError, match=f'backend "triton" {reason}; use "auto" or "reference"'):
        choose_backend("triton", **{**usual, **inputs})


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(dispatch.INSTALLED, "cpu", False)
    with pytest.raises(BackendError, match=r"needs numba, which is not installed \(pip install 'tallybox\[cpu\]'\)"):
        choose_backend("cpu", device=torch.device("cpu"), dtype=torch.float32, boxes=10)
    assert choose_backend("auto", device=torch.device("cpu"), dtype=torch.float32, boxes=10) == "reference"


def test_auto_says_so_once_where_the_fused_backend_does_not_cover_the_inputs():
    inputs = {"device": torch.device("cuda"), "dtype": torch.float64, "boxes": 11}
    dispatch._warn_once.cache_clear()
    with pytest.warns(BackendWarning, match="computes in float32, but the inputs are float64; the reference serves"):
        assert choose_backend("auto", **inputs) == "reference"
    assert choose_backend("auto", **inputs) == "reference"  # warnings are errors here: a second would show


@pytest.mark.parametrize(("device", "served_by"), [("cpu", "cpu"), ("cuda", "triton"), ("meta", "reference")])
def test_auto_follows_the_table(device, served_by):
    assert choose_backend("auto", device=torch.device(device), dtype=torch.float32, boxes=10) == served_by
