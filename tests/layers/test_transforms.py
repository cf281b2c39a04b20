"""`torch.func` transforms and forward-mode derivatives: as the reference gives, or a clear error."""

import pytest
import torch
from torch.autograd import forward_ad

from tallybox import check_values
from tallybox.errors import BackendError
from tests.support.backends import FUSED, device_of
from tests.support.problems import build_counter, cotangent, inputs_of, random_problem
from tests.support.tolerances import tolerance
from tests.support.torch_warnings import TORCH_WARNS_ABOUT_ITSELF

pytestmark = [
    *TORCH_WARNS_ABOUT_ITSELF,
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr:UserWarning"),
]


def dual_number(function, x):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, cotangent(x)))).tangent


def linearized(function, x):
    with check_values("never"):  # it traces the function, and a look at a value would fix it
        return torch.func.linearize(function, x)[1](cotangent(x))


TRANSFORMS = {
    "grad": lambda function, x: torch.func.grad(lambda x: function(x).square().sum())(x),
    "grad_and_value": lambda function, x: torch.func.grad_and_value(lambda x: function(x).square().sum())(x)[0],
    "vjp": lambda function, x: torch.func.vjp(function, x)[1](cotangent(function(x)))[0],
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (cotangent(x),))[1],
    "linearize": linearized,
    "jacrev": lambda function, x: torch.func.jacrev(function)(x),
    "jacfwd": lambda function, x: torch.func.jacfwd(function)(x),
    "hessian": lambda function, x: torch.func.hessian(lambda x: function(x).square().sum())(x),
    "vmap": lambda function, x: torch.func.vmap(function)(torch.stack((x, x.flip(0)))),
    "functionalize": lambda function, x: torch.func.functionalize(function)(x),
    "dual number": dual_number,
}


# Linearizing takes seconds.
EVERY_TRANSFORM = [
    pytest.param(transform, id=name, marks=[pytest.mark.slow] if name == "linearize" else [])
    for name, transform in TRANSFORMS.items()
]


@pytest.mark.parametrize("differentiated", ["attention", "boxes", "parameters"])
@pytest.mark.parametrize("transform", EVERY_TRANSFORM)
@pytest.mark.parametrize("masked", [False, True])
def test_auto_gives_what_the_reference_gives(layer, transform, differentiated, masked):
    problem = random_problem(2, proposals=7, max_objects=5, heads=2, masked=masked, seed=3, layer=layer)
    counter = build_counter(problem, "reference", torch.float32)
    attention, boxes, mask = (
        value if value is None else value.detach() for value in inputs_of(problem, "reference", torch.float32)
    )
    name, parameter = next(iter(counter.named_parameters()))

    def function(x):
        if differentiated == "parameters":
            return torch.func.functional_call(counter, {name: x}, (attention, boxes, mask))
        return counter(x, boxes, mask) if differentiated == "attention" else counter(attention, x, mask)

    x = {"attention": attention, "boxes": boxes, "parameters": parameter.detach()}[differentiated]
    expected = transform(function, x)
    counter.backend = "auto"
    got = transform(function, x)
    assert expected.abs().max() > 0
    torch.testing.assert_close(got, expected, **tolerance("reference", torch.float32)._asdict())


@pytest.mark.parametrize("transform", EVERY_TRANSFORM)
@pytest.mark.parametrize("fused", FUSED)
def test_a_fused_backend_says_that_it_has_no_rules(layer, fused, transform):
    problem = random_problem(2, proposals=5, seed=3, layer=layer)
    counter = build_counter(problem, fused, torch.float32)
    attention, boxes = (value.float().to(device_of(fused)) for value in (problem.attention, problem.boxes))
    with pytest.raises(BackendError, match=r"torch\.func"):
        transform(lambda x: counter(x, boxes), attention)


def test_other_parts_of_a_model_can_be_transformed(layer):
    """The layer's own inputs are constants, but its parameters want gradients."""
    counter, (attention, boxes) = layer(5), (torch.rand(2, 5), torch.rand(2, 5, 4).sort(-1).values)
    total = counter(attention, boxes).sum().detach()
    gradient = torch.func.grad(lambda x: (x * counter(attention, boxes).sum()).sum())(torch.ones(3))
    torch.testing.assert_close(gradient, total.expand(3))


@pytest.mark.parametrize("fused", FUSED)
def test_batched_gradients_of_a_fused_backend_are_an_error(layer, fused):
    problem = random_problem(2, proposals=5, seed=3, layer=layer)
    counter = build_counter(problem, fused, torch.float32)
    attention, boxes = (value.float().to(device_of(fused)) for value in (problem.attention, problem.boxes))
    with pytest.raises(BackendError, match="batched gradients"):
        torch.autograd.functional.jacobian(lambda x: counter(x, boxes), attention, vectorize=True)
