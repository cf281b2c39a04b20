"""Operators of `torch.library`: kernels that eager, compiled and exported calls reach in the same way."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tallybox.errors import BackendError
from tallybox.kernels.layout import Layout

INPUTS = "Tensor attention, Tensor boxes, Tensor weight, Tensor? mask"

Tensors = tuple[Tensor, ...]


class Inputs(NamedTuple):
    """The images of M counters; for kernels in one list, ordered by counter, all tensors contiguous."""

    attention: Tensor  # [I, N]; logits for presence counting
    boxes: Tensor  # [I, N, 4]
    weight: Tensor  # [M, ...]
    mask: Tensor | None  # [I, N]


def launchers(package: str, backend: str) -> Any:
    """Import the launchers of a component's fused backend; other backends do not need Numba or Triton."""
    return import_module(f"{package}.{'cpu' if backend == 'cpu' else 'cuda'}.launch")


def define_component(
    name: str, package: str, result_shapes: Callable[[Tensor, int], tuple[tuple[int, ...], ...]]
) -> Any:
    """Register a component's kernels as an operator that has a gradient; return the operator.

    Its arguments are those of `Inputs`, ``max_objects``, whether a backward pass may follow, and the backend. It
    returns the results and the state that a backward pass needs. ``package`` holds the launchers, ``result_shapes``
    gives the shapes of the results for ``(attention, max_objects)``. `torch.library.custom_op` is simpler, but its
    first call imports the compiler, which takes more than a second.
    """

    def allocate(*arguments: Any) -> Tensors:
        *tensors, max_objects, save_state, backend = arguments
        inputs = Inputs(*tensors)
        size = launchers(package, backend).state_size(inputs, max_objects, save_state)
        return tuple(
            inputs.attention.new_empty(shape) for shape in (*result_shapes(inputs.attention, max_objects), size)
        )

    def forward(*arguments: Any) -> Tensors:
        *results, state = allocate(*arguments)
        launchers(package, arguments[-1]).forward(Inputs(*arguments[:4]), results, state)
        return *results, state

    def backward(*arguments: Any) -> Any:
        *tensors, state, grads_of_results, max_objects, boxes_need_grad, backend = arguments
        inputs = Inputs(*tensors)
        shapes = result_shapes(inputs.attention, max_objects)
        grads = [
            inputs.attention.new_zeros(shape) if grad is None else grad.contiguous()
            for shape, grad in zip(shapes, grads_of_results, strict=True)
        ]
        return launchers(package, backend).backward(inputs, state, grads, boxes_need_grad)

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


def call_operator(
    operator: Any, inputs: Inputs, weight_leading: torch.Size, *, max_objects: int, backend: str
) -> list[Tensor]:
    """Call a component's operator on inputs whose leading dimensions broadcast; return its results.

    ``weight_leading`` are the leading dimensions of the weight, the remaining ones belong to one counter.
    """
    attention, boxes, weight, mask = inputs
    leading = [tensor.shape[:-1] for tensor in (attention, mask) if tensor is not None]
    layout = Layout.of(weight_leading, boxes.shape[:-2], *leading)
    *results, _ = operator(
        layout.to_list(attention, 1),
        layout.to_list(boxes, 2),
        weight.reshape(-1, *weight.shape[len(weight_leading) :]).contiguous(),
        None if mask is None else layout.to_list(mask, 1),
        max_objects,
        torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs[:3]),
        backend,
    )
    return [layout.from_list(result) for result in results]
