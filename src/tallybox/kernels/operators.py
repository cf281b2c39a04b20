"""Operators of `torch.library`: kernels that eager, compiled and exported calls reach in the same way."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tallybox.errors import BackendError

INPUTS = "Tensor attention, Tensor boxes, Tensor weight, Tensor? mask"

Tensors = tuple[Tensor, ...]


class Inputs(NamedTuple):
    """The images of M counters in one list, ordered by counter, all tensors contiguous."""

    attention: Tensor  # [I, N]; logits for presence counting
    boxes: Tensor  # [I, N, 4]
    weight: Tensor  # [M, ...]
    mask: Tensor | None  # [I, N]


def define_component(
    name: str, launchers: Callable[[str], Any], result_shapes: Callable[[Tensor, int], tuple[tuple[int, ...], ...]]
) -> Any:
    """Register a component's kernels as an operator that has a gradient; return the operator.

    Its arguments are those of `Inputs`, ``max_objects``, whether a backward pass may follow, and the backend. It
    returns the results and the state that a backward pass needs. ``launchers`` imports the launchers of a backend,
    ``result_shapes`` gives the shapes of the results for ``(attention, max_objects)``. `torch.library.custom_op` is
    simpler, but its first call imports the compiler, which takes more than a second.
    """

    def allocate(*arguments: Any) -> Tensors:
        *tensors, max_objects, save_state, backend = arguments
        inputs = Inputs(*tensors)
        size = launchers(backend).state_size(inputs, max_objects, save_state)
        return tuple(
            inputs.attention.new_empty(shape) for shape in (*result_shapes(inputs.attention, max_objects), size)
        )

    def forward(*arguments: Any) -> Tensors:
        *results, state = allocate(*arguments)
        launchers(arguments[-1]).forward(Inputs(*arguments[:4]), results, state)
        return *results, state

    def backward(*arguments: Any) -> Any:
        *tensors, state, grads_of_results, max_objects, boxes_need_grad, backend = arguments
        inputs = Inputs(*tensors)
        shapes = result_shapes(inputs.attention, max_objects)
        grads = [
            inputs.attention.new_zeros(shape) if grad is None else grad.contiguous()
            for shape, grad in zip(shapes, grads_of_results, strict=True)
        ]
        return launchers(backend).backward(inputs, state, grads, boxes_need_grad)

    def allocate_gradients(*arguments: Any) -> Tensors:
        return tuple(torch.empty_like(tensor) for tensor in arguments[:3])

    def save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        *tensors, ctx.max_objects, _, ctx.backend = inputs
        ctx.save_for_backward(*tensors, output[-1])
        ctx.mark_non_differentiable(output[-1])
        ctx.set_materialize_grads(False)  # a call makes use of few results, and the state has no gradient

    def differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        settings = (ctx.max_objects, ctx.needs_input_grad[1], ctx.backend)
        gradients = backward_operator(*ctx.saved_tensors, list(grads[:-1]), *settings)
        return (*gradients, None, None, None, None)

    tensors = ", ".join(["Tensor"] * (len(result_shapes(torch.empty(0, 0), 1)) + 1))
    schema = f"({INPUTS}, SymInt max_objects, bool save_state, str backend) -> ({tensors})"
    operator = define_operator(f"{name}_forward", schema, forward, allocate)
    schema = f"({INPUTS}, Tensor state, Tensor?[] grads, SymInt max_objects, bool boxes_need_grad, str backend)"
    backward_operator = define_operator(
        f"{name}_backward", f"{schema} -> (Tensor, Tensor, Tensor)", backward, allocate_gradients
    )
    torch.library.register_autograd(f"tallybox::{name}_forward", differentiate, setup_context=save_for_backward)
    torch.library.register_autograd(f"tallybox::{name}_backward", refuse_second_derivative)
    return operator


def refuse_second_derivative(ctx: Any, *gradients: Any) -> None:
    """The gradient of an operator that computes a gradient."""
    raise BackendError(
        'fused backends have first derivatives only, but a second derivative was computed; use backend="reference"'
    )


def define_operator(name: str, schema: str, function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Register a function that changes none of its arguments; ``fake`` returns tensors of the same shapes."""

    def on_current_device(*arguments: Any) -> Any:
        with torch.cuda.device_of(arguments[0]):  # Triton launches on the current device
            return function(*arguments)

    torch.library.define(f"tallybox::{name}", schema, tags=torch.Tag.pt2_compliant_tag)
    torch.library.impl(f"tallybox::{name}", "cpu", function)
    torch.library.impl(f"tallybox::{name}", "cuda", on_current_device)
    torch.library.register_fake(f"tallybox::{name}", fake)
    return getattr(torch.ops.tallybox, name)


def needs_gradient(*tensors: Tensor) -> bool:
    """Whether a backward pass may follow an operation on these tensors."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
