import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tallybox import PiecewiseLinear, piecewise_linear
from tests.support import oracle
from tests.support.problems import random_generator, random_weight
from tests.support.strategies import activation_weights
from tests.support.tolerances import ROUNDING

DTYPES = [torch.float64, torch.float32]


@pytest.mark.parametrize(
    ("x", "value"), [(0.0, 0.0), (0.125, 0.05), (0.25, 0.1), (0.5, 0.3), (0.625, 0.45), (0.75, 0.6), (1.0, 1.0)]
)
def test_value_is_the_share_of_weight_to_the_left(x, value):
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    got = piecewise_linear(torch.tensor(x, dtype=torch.float64), weight)
    assert got.item() == pytest.approx(value, abs=1e-15)


@pytest.mark.parametrize("segments", [1, 2, 7, 16, 33])
def test_values_are_those_of_the_papers_formula(segments):
    weight = random_weight(segments, seed=segments)
    x = torch.linspace(0, 1, 101, dtype=torch.float64)
    expected = torch.tensor([oracle.activation(value, weight.tolist()) for value in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(piecewise_linear(x, weight), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@given(weight=activation_weights(16))
def test_zero_and_one_stay_exactly_where_they_are(dtype, weight):
    ends = torch.tensor([0.0, 1.0], dtype=dtype)
    assert piecewise_linear(ends, weight.to(dtype)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("dtype", DTYPES)
@given(weight=activation_weights(16), x=st.lists(st.floats(0, 1, width=32), min_size=2, max_size=20))
def test_it_never_falls_and_stays_in_the_unit_interval(dtype, weight, x):
    y = piecewise_linear(torch.tensor(sorted(x), dtype=dtype), weight.to(dtype))
    assert (y.diff() >= -ROUNDING[dtype].atol).all()
    assert (y >= 0).all()
    assert (y <= 1 + ROUNDING[dtype].atol).all()


@given(weight=activation_weights(16), sign_seed=st.integers(0, 1000))
def test_only_the_size_of_the_weights_matters_not_their_sign(weight, sign_seed):
    signs = torch.randint(2, (16,), generator=random_generator(sign_seed)) * 2 - 1
    x = torch.linspace(0, 1, 33, dtype=torch.float64)
    assert torch.equal(piecewise_linear(x, weight * signs), piecewise_linear(x, weight))


@pytest.mark.parametrize("factor", [1e-30, 0.3, 1e37])
def test_a_common_factor_of_the_weights_does_not_matter(factor):
    weight = random_weight(16, seed=0).float()
    x = torch.linspace(0, 1, 33)
    torch.testing.assert_close(piecewise_linear(x, weight * factor), piecewise_linear(x, weight))


def test_weights_that_are_all_zero_give_the_straight_line():
    x = torch.linspace(0, 1, 33, dtype=torch.float64)
    torch.testing.assert_close(piecewise_linear(x, torch.zeros(16, dtype=torch.float64)), x, rtol=0, atol=1e-15)


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e38])
def test_gradients_are_finite_whatever_the_size_of_the_weights(size):
    weight = torch.full((16,), size, requires_grad=True)
    x = torch.linspace(0, 1, 33, requires_grad=True)
    piecewise_linear(x, weight).pow(2).sum().backward()
    assert x.grad.isfinite().all()
    assert weight.grad.isfinite().all()


def test_slope_on_a_knot_is_that_to_its_right_and_at_one_that_to_its_left():
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    x = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64, requires_grad=True)
    piecewise_linear(x, weight).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([0.4, 0.8, 1.2, 1.6, 1.6], dtype=torch.float64))


def test_gradients_are_those_of_finite_differences_between_knots():
    weight = random_weight(5, seed=3).requires_grad_()
    x = torch.tensor([0.03, 0.11, 0.35, 0.52, 0.77, 0.96], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(piecewise_linear, (x, weight))


def test_each_function_of_a_stack_applies_to_its_own_column():
    weight = random_weight(3, 16, seed=4)
    x = torch.rand(5, 3, generator=random_generator(5), dtype=torch.float64)
    got = piecewise_linear(x, weight)
    for column in range(3):
        assert torch.equal(got[:, column], piecewise_linear(x[:, column], weight[column]))


def test_leading_dimensions_broadcast_either_way():
    weight = random_weight(4, 1, 16, seed=6)
    x = torch.rand(3, generator=random_generator(7), dtype=torch.float64)
    got = piecewise_linear(x, weight)
    assert got.shape == (4, 3)
    for row in range(4):
        assert torch.equal(got[row], piecewise_linear(x, weight[row, 0]))


def test_non_contiguous_equals_contiguous():
    weight = random_weight(16, 3, seed=8).mT
    x = torch.rand(3, 7, generator=random_generator(9), dtype=torch.float64).mT
    assert not weight.is_contiguous()
    assert not x.is_contiguous()
    assert torch.equal(piecewise_linear(x, weight), piecewise_linear(x.contiguous(), weight.contiguous()))


def test_no_numbers_in_give_no_numbers_out():
    assert piecewise_linear(torch.ones(0, 3), torch.ones(16)).shape == (0, 3)


def test_float32_agrees_with_float64():
    weight = random_weight(16, seed=10)
    x = torch.rand(50, generator=random_generator(11), dtype=torch.float64)
    low = piecewise_linear(x.float(), weight.float())
    assert low.dtype == torch.float32
    torch.testing.assert_close(low.double(), piecewise_linear(x, weight), rtol=1e-5, atol=1e-5)


def test_layer_starts_as_the_identity():
    x = torch.linspace(0, 1, 33, dtype=torch.float64)
    torch.testing.assert_close(PiecewiseLinear(segments=5).double()(x), x, rtol=0, atol=1e-15)


def test_layer_is_its_function_with_a_learned_weight():
    layer = PiecewiseLinear(segments=8)
    with torch.no_grad():
        layer.weight.copy_(random_weight(8, seed=12))
    x = torch.rand(2, 3, generator=random_generator(13))
    out = layer(x)
    assert torch.equal(out, piecewise_linear(x, layer.weight))
    out.sum().backward()
    assert layer.weight.grad.shape == (8,)
    assert repr(layer) == "PiecewiseLinear(segments=8)"
