"""Second derivatives of fused backends, eager and compiled: an error, never wrong numbers.

Of any compiled function, also of ``x ** 3``, `torch.autograd.functional.hessian` gives zeros unless it is strict.
"""

from functools import partial

import pytest
import torch
from torch._functorch import config as functorch_config

from tallybox.errors import BackendError
from tests.support.backends import FUSED, device_of, is_interpreted
from tests.support.problems import build_counter, random_problem
from tests.support.torch_warnings import TORCH_WARNS_ABOUT_ITSELF

pytestmark = TORCH_WARNS_ABOUT_ITSELF


def penalty_of_gradient(count, x):
    """A gradient penalty whose incoming gradient does not require grad."""
    (gradient,) = torch.autograd.grad(count((1.3 * x).sigmoid()), x, create_graph=True)
    gradient.square().sum().backward()
    return x.grad


def gradient_of_gradient(count, x):
    (gradient,) = torch.autograd.grad(count(x), x, create_graph=True)
    gradient.sum().backward()
    return x.grad


def forward_by_two_backward(count, x):
    """The gradient is differentiated with respect to the incoming gradient alone."""
    return torch.autograd.functional.jvp(count, x, torch.ones_like(x))[1]


SECOND_DERIVATIVES = {
    "attention as a leaf": gradient_of_gradient,
    "a penalty behind a logistic": penalty_of_gradient,
    "a forward derivative by two backward ones": forward_by_two_backward,
    "strict hessian": partial(torch.autograd.functional.hessian, strict=True),
}


@pytest.mark.parametrize("second_derivative", SECOND_DERIVATIVES.values(), ids=SECOND_DERIVATIVES)
@pytest.mark.parametrize("fused", FUSED)
def test_a_fused_backend_names_the_reference(layer, fused, second_derivative):
    problem = random_problem(3, proposals=6, max_objects=6, seed=8, layer=layer)
    counter = build_counter(problem, fused, torch.float32)
    attention, boxes = (t.float().to(device_of(fused)) for t in (problem.attention, problem.boxes))
    with pytest.raises(BackendError, match="reference"):
        second_derivative(lambda x: counter(x, boxes)[:, 3].sum(), attention.requires_grad_())


@pytest.mark.slow
@pytest.mark.parametrize("second_derivative", SECOND_DERIVATIVES.values(), ids=SECOND_DERIVATIVES)
@pytest.mark.parametrize("fused", FUSED)
def test_compiled_a_fused_backend_raises_rather_than_give_a_wrong_second_derivative(layer, fused, second_derivative):
    if is_interpreted(fused):
        pytest.skip("Triton's interpreter cannot be compiled")
    problem = random_problem(3, proposals=6, max_objects=6, seed=8, layer=layer)
    counter = build_counter(problem, fused, torch.float32).to(device_of(fused))
    attention, boxes = (t.float().to(device_of(fused)) for t in (problem.attention, problem.boxes))

    def count(x):
        return counter(x, boxes)[:, 3].sum()

    torch._dynamo.reset()
    compiled = torch.compile(count)
    with functorch_config.patch(donated_buffer=False):  # as PyTorch advises who asks for a second derivative
        (first,) = torch.autograd.grad(compiled(x := attention.clone().requires_grad_()), x)
        (expected,) = torch.autograd.grad(count(x := attention.clone().requires_grad_()), x)
        torch.testing.assert_close(first, expected)
        # Ours where the backward operator is differentiated, PyTorch's where the compiled backward as a whole is.
        with pytest.raises((BackendError, RuntimeError), match=r'use backend="reference"|double backward|strict mode'):
            second_derivative(compiled, attention.clone().requires_grad_())


@pytest.mark.parametrize("second_derivative", SECOND_DERIVATIVES.values(), ids=SECOND_DERIVATIVES)
def test_the_reference_has_second_derivatives(layer, second_derivative):
    problem = random_problem(3, proposals=6, max_objects=6, seed=8, layer=layer)
    counter = build_counter(problem, "reference", torch.float64)
    found = second_derivative(
        lambda x: counter(x, problem.boxes)[:, 3].sum(), problem.attention.clone().requires_grad_()
    )
    assert found.isfinite().all()
    assert found.abs().max() > 0
