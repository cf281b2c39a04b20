"""Fused kernels as differentiable functions: eager calls, and operators that a compiler sees.

Both reach the same launchers. An eager call is an autograd function, which costs least. A compiled call is an operator
of `torch.library`, defined when a compiler first meets it: an opaque one for Numba's kernels; for Triton's kernels one
that the compiler looks into, so that it can put them into CUDA graphs.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tallybox.errors import BackendError
from tallybox.kernels.dispatch import triton_is_interpreted
from tallybox.kernels.layout import Layout

Tensors = tuple[Tensor, ...]


class Inputs(NamedTuple):
    """The images of M counters; for kernels in one list, ordered by counter, all tensors contiguous."""

    attention: Tensor  # [I, N]; logits for presence counting
    boxes: Tensor  # [I, N, 4]
    mask: Tensor | None  # [I, N]
    weights: Sequence[Tensor]  # each [M, ...]


class Component(NamedTuple):
    """A component as its fused backends see it."""

    name: str
    package: str  # with launchers in `cpu.launch` and `cuda.launch`
    result_shapes: Callable[[Tensor, int], tuple[tuple[int, ...], ...]]  # for (attention [I, N], max_objects)

    def forward(self, inputs: Inputs, max_objects: int, save_state: bool, backend: str, **route: Any) -> Tensors:
        """Return the results, and the state that a backward pass needs."""
        *results, state = self.allocate(inputs, max_objects, save_state, backend)
        if len(inputs.attention):
            with _device_of(inputs.attention):
                launchers(self.package, backend).forward(inputs, results, state, **route)
        return *results, state

    def allocate(self, inputs: Inputs, max_objects: int, save_state: bool, backend: str) -> Tensors:
        """Return what `forward` returns, unwritten."""
        size = launchers(self.package, backend).state_size(inputs, max_objects, save_state)
        shapes = (*self.result_shapes(inputs.attention, max_objects), (size,))
        return tuple(inputs.attention.new_empty(shape) for shape in shapes)

    def backward(
        self,
        inputs: Inputs,
        state: Tensor,
        grads_of_results: Sequence[Tensor | None],
        max_objects: int,
        boxes_need_grad: bool,
        backend: str,
        **route: Any,
    ) -> list[Tensor]:
        """Return the gradients of attention, boxes and weights."""
        if not len(inputs.attention):
            return [torch.zeros_like(tensor) for tensor in (*inputs[:2], *inputs.weights)]
        shapes = self.result_shapes(inputs.attention, max_objects)
        grads = [
            inputs.attention.new_zeros(shape) if grad is None else grad.contiguous()
            for shape, grad in zip(shapes, grads_of_results, strict=True)
        ]
        with _device_of(inputs.attention):
            gradients: list[Tensor] = launchers(self.package, backend).backward(
                inputs, state, grads, boxes_need_grad, **route
            )
        return gradients


@cache
def launchers(package: str, backend: str) -> Any:
    """Import the launchers of a component's fused backend; other backends do not need Numba or Triton."""
    return import_module(f"{package}.{'cpu' if backend == 'cpu' else 'cuda'}.launch")


def _device_of(tensor: Tensor) -> Any:
    """Make a tensor's GPU the current one, which Triton launches on."""
    is_current = not tensor.is_cuda or tensor.get_device() == torch.cuda.current_device()
    return nullcontext() if is_current else torch.cuda.device(tensor.device)


class Fused(torch.autograd.Function):
    """An eager call of a component's kernels: ``(component, backend, max_objects, save_state, *inputs)``."""

    generate_vmap_rule = True  # for transforms of other parts of a model

    @staticmethod
    def forward(
        component: Component, backend: str, max_objects: int, save_state: bool,
        attention: Tensor, boxes: Tensor, mask: Tensor | None, *weights: Tensor,
    ) -> Tensors:  # fmt: skip
        """Return results and state."""
        return component.forward(Inputs(attention, boxes, mask, weights), max_objects, save_state, backend)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        """Keep what a backward pass needs."""
        ctx.component, ctx.backend, ctx.max_objects, _, *tensors = inputs
        ctx.save_for_backward(*tensors, output[-1])
        ctx.mark_non_differentiable(output[-1])
        ctx.set_materialize_grads(False)  # a call makes use of few results, and the state has no gradient

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of attention, boxes and weights."""
        attention, boxes, mask, *weights, state = ctx.saved_tensors
        inputs = Inputs(attention, boxes, mask, weights)
        settings = (ctx.max_objects, ctx.needs_input_grad[5], ctx.backend)
        gradients: Sequence[Tensor] = ctx.component.backward(inputs, state, grads[:-1], *settings)
        if torch.is_grad_enabled():  # a second derivative may be wanted
            gradients = OneDerivative.apply(attention, boxes, *weights, *gradients)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return (None, None, None, None, *gradients[:2], None, *gradients[2:])


class OneDerivative(torch.autograd.Function):
    """Gradients, given behind the inputs that they are of, which refuse to be differentiated."""

    @staticmethod
    def forward(ctx: Any, *inputs_and_gradients: Tensor) -> Tensors:
        """Return the gradients."""
        gradients = inputs_and_gradients[len(inputs_and_gradients) // 2 :]
        return tuple(gradient.view_as(gradient) for gradient in gradients)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> None:
        """Refuse."""
        refuse_second_derivative()


def refuse_second_derivative(*_: Any) -> None:
    """The gradient of an operator that computes a gradient."""
    raise BackendError(
        'fused backends have first derivatives only, but a second derivative was computed; use backend="reference"'
    )


@torch.compiler.assume_constant_result  # while a compiler traces a call, this runs as it is
def ensure_operator(component: Component, backend: str) -> None:
    """Define the operator ``tallybox::<name>_<backend>`` of compiled calls, unless that is done."""
    name = f"{component.name}_{backend}"
    if not hasattr(torch.ops.tallybox, name):
        _define_operator(f"tallybox::{name}", component, backend)


def _define_operator(name: str, component: Component, backend: str) -> None:
    is_opaque = backend == "cpu" or triton_is_interpreted()
    route = {} if is_opaque else {"launch": import_module("tallybox.kernels.cuda").launch_in_graph}

    # Their annotations are the operators' schemas.
    def forward(
        attention: Tensor, boxes: Tensor, mask: Tensor | None, weights: list[Tensor], max_objects: int, save_state: bool
    ) -> list[Tensor]:
        inputs = Inputs(attention, boxes, mask, weights)
        return list(component.forward(inputs, max_objects, save_state, backend, **route))

    def backward(
        attention: Tensor, boxes: Tensor, mask: Tensor | None, weights: list[Tensor], state: Tensor,
        grads: list[Tensor | None], max_objects: int, boxes_need_grad: bool,
    ) -> list[Tensor]:  # fmt: skip
        inputs = Inputs(attention, boxes, mask, weights)
        return component.backward(inputs, state, grads, max_objects, boxes_need_grad, backend, **route)

    def allocate(attention: Tensor, boxes: Tensor, mask: Any, weights: list[Tensor], *settings: Any) -> list[Tensor]:
        return list(component.allocate(Inputs(attention, boxes, mask, weights), *settings, backend))

    def allocate_gradients(attention: Tensor, boxes: Tensor, _: Any, weights: list[Tensor], *__: Any) -> list[Tensor]:
        return [torch.empty_like(tensor) for tensor in (attention, boxes, *weights)]

    def save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
        *tensors, weights, ctx.max_objects, _ = inputs
        ctx.save_for_backward(*tensors, *weights, output[-1])

    def differentiate(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
        attention, boxes, mask, *weights, state = ctx.saved_tensors
        settings = (state, grads[:-1], ctx.max_objects, ctx.needs_input_grad[1])
        gradients = _operator(f"{name}_backward")(attention, boxes, mask, weights, *settings)
        return (*gradients[:2], None, gradients[2:], None, None)

    for suffix, function, fake in (("", forward, allocate), ("_backward", backward, allocate_gradients)):
        if is_opaque:  # a compiler calls it as it is
            schema = torch.library.infer_schema(function, mutates_args=())
            torch.library.define(name + suffix, schema, tags=torch.Tag.pt2_compliant_tag)
            torch.library.impl(name + suffix, "cpu", function)
            torch.library.register_fake(name + suffix, fake)
        else:  # a compiler sees its kernels
            torch.library.triton_op(name + suffix, function, mutates_args=())
    torch.library.register_autograd(name, differentiate, setup_context=save_for_backward)
    torch.library.register_autograd(f"{name}_backward", refuse_second_derivative)


def _operator(name: str) -> Any:
    """Return a defined operator."""
    return getattr(torch.ops.tallybox, name.removeprefix("tallybox::"))


def call_fused(
    component: Component,
    attention: Tensor,
    boxes: Tensor,
    mask: Tensor | None,
    weights: Sequence[Tensor],
    weight_leading: torch.Size,
    *,
    max_objects: int,
    backend: str,
) -> list[Tensor]:
    """Call a component's kernels on inputs whose leading dimensions broadcast; return its results.

    ``weight_leading`` are the leading dimensions of the weights, the remaining ones belong to one counter.
    """
    leading = [tensor.shape[:-1] for tensor in (attention, mask) if tensor is not None]
    layout = Layout.of(weight_leading, boxes.shape[:-2], *leading)
    inputs = Inputs(
        layout.to_list(attention, 1),
        layout.to_list(boxes, 2),
        None if mask is None else layout.to_list(mask, 1),
        [_one_list_of_counters(weight, len(weight_leading)) for weight in weights],
    )
    save_state = torch.is_grad_enabled() and any(t.requires_grad for t in (attention, boxes, *weights))
    if torch.compiler.is_compiling():
        ensure_operator(component, backend)
        *results, _ = _operator(f"{component.name}_{backend}")(*inputs, max_objects, save_state)
    elif save_state:
        apply: Any = Fused.apply  # torch leaves it untyped
        *results, _ = apply(component, backend, max_objects, save_state, *inputs[:3], *inputs.weights)
    else:
        *results, _ = component.forward(inputs, max_objects, save_state, backend)
    return [layout.from_list(result) for result in results]


def _one_list_of_counters(weight: Tensor, leading: int) -> Tensor:
    """Bring ``[..., *shape]`` to ``[M, *shape]``, contiguous."""
    if leading != 1:  # a reshape that changes nothing still costs a step of autograd
        weight = weight.reshape(-1, *weight.shape[leading:])
    return weight.contiguous()
