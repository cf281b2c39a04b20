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

from tallybox import __version__
from tallybox.checks import is_transformed
from tallybox.errors import BackendError
from tallybox.kernels.dispatch import triton_is_interpreted
from tallybox.kernels.layout import Layout

Tensors = tuple[Tensor, ...]
Grads = Sequence[Tensor | None]  # of results, None for 0
VERSION = __version__.replace(".", "_")


class Inputs(NamedTuple):
    """The images of M counters; for kernels in one list, ordered by counter, all tensors contiguous."""

    attention: Tensor  # [I, N]
    boxes: Tensor  # [I, N, 4]
    mask: Tensor | None  # [I, N]
    weights: Sequence[Tensor]  # each [M, ...]
    max_objects: int
    logits: bool  # whether the attention is


class Component(NamedTuple):
    """A component as its fused backends see it."""

    name: str  # of its package, with launchers in `cpu.launch` and `cuda.launch`
    result_shapes: Callable[[Tensor, int], tuple[tuple[int, ...], ...]]  # for (attention [I, N], max_objects)

    def forward(self, inputs: Inputs, save_state: bool, backend: str, **route: Any) -> Tensors:
        """Return the results, and the state that a backward pass needs."""
        *results, state = self.allocate(inputs, save_state, backend)
        if inputs.attention.shape[0]:  # `len` would fix a symbolic size
            with _device_of(inputs.attention):
                launchers(self.name, backend).forward(inputs, results, state, **route)
        return *results, state

    def allocate(self, inputs: Inputs, save_state: bool, backend: str) -> Tensors:
        """Return what `forward` returns, unwritten."""
        size = launchers(self.name, backend).state_size(inputs, save_state)
        shapes = (*self.result_shapes(inputs.attention, inputs.max_objects), (size,))
        return tuple(inputs.attention.new_empty(shape) for shape in shapes)

    def backward(
        self, inputs: Inputs, state: Tensor, grads: Grads, boxes_need_grad: bool, backend: str, **route: Any
    ) -> list[Tensor]:
        """Return the gradients of attention, boxes and weights."""
        if not inputs.attention.shape[0]:
            return [torch.zeros_like(tensor) for tensor in (*inputs[:2], *inputs.weights)]
        # A result without a gradient has zeros, but if only the first has one, kernels do without the others.
        if any(grad is not None for grad in grads[1:]) or grads[0] is None or backend == "cpu":
            shapes = self.result_shapes(inputs.attention, inputs.max_objects)
            pairs = zip(grads, shapes, strict=True)
            grads = [inputs.attention.new_zeros(shape) if grad is None else grad for grad, shape in pairs]
        grads = [None if grad is None else grad.contiguous() for grad in grads]
        backward = launchers(self.name, backend).backward
        with _device_of(inputs.attention):
            gradients: list[Tensor] = backward(inputs, state, grads, boxes_need_grad, **route)
        return gradients


@cache
def launchers(component: str, backend: str) -> Any:
    """Import the launchers of a component's fused backend; other backends do not need Numba or Triton."""
    return import_module(f"tallybox.{component}.{'cpu' if backend == 'cpu' else 'cuda'}.launch")


def _device_of(tensor: Tensor) -> Any:
    """Make a tensor's GPU the current one, which Triton launches on."""
    is_current = not tensor.is_cuda or tensor.get_device() == torch.cuda.current_device()
    return nullcontext() if is_current else torch.cuda.device(tensor.device)


class Fused(torch.autograd.Function):
    """An eager call of a component's kernels."""

    @staticmethod
    def forward(
        ctx: Any, component: Component, backend: str, max_objects: int, logits: bool,
        attention: Tensor, boxes: Tensor, mask: Tensor | None, *weights: Tensor,
    ) -> Tensors:  # fmt: skip
        """Return the results."""
        inputs = Inputs(attention, boxes, mask, weights, max_objects, logits)
        *results, state = component.forward(inputs, save_state=True, backend=backend)
        ctx.component, ctx.backend, ctx.settings = component, backend, (max_objects, logits)
        ctx.save_for_backward(attention, boxes, mask, state, *weights)
        ctx.set_materialize_grads(False)  # a call makes use of few results
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of attention, boxes and weights."""
        if is_transformed(*grads):
            raise BackendError(
                "fused backends have no rule for batched gradients (is_grads_batched=True, vectorize=True, vmap); "
                'use backend="reference"'
            )
        attention, boxes, mask, state, *weights = ctx.saved_tensors
        inputs = Inputs(attention, boxes, mask, weights, *ctx.settings)
        gradients: Sequence[Tensor] = ctx.component.backward(
            inputs, state, grads, boxes_need_grad=ctx.needs_input_grad[5], backend=ctx.backend
        )
        if torch.is_grad_enabled():  # a second derivative may be wanted
            sources = (attention, boxes, *weights, *grads)
            gradients = OneDerivative.apply(len(gradients), *gradients, *sources)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return (None, None, None, None, *gradients[:2], None, *gradients[2:])


# Without the Python around `Fused.apply`, which takes a third of an eager call. It is for transforms of `torch.func`,
# whose tensors never come here.
apply_fused: Any = super(torch.autograd.Function, Fused).apply


class OneDerivative(torch.autograd.Function):
    """Gradients, given with all that they depend on, which refuse to be differentiated."""

    @staticmethod
    def forward(ctx: Any, number: int, *gradients_and_sources: Tensor | None) -> Tensors:
        """Return the gradients, the first ``number`` tensors."""
        return tuple(gradient.view_as(gradient) for gradient in gradients_and_sources[:number] if gradient is not None)

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


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # while a compiler traces a call, this runs as it is
def ensure_operator(component: Component, backend: str) -> str:
    """Define the operator of compiled calls, unless that is done, and return its name."""
    name = f"{component.name}_{backend}_{VERSION}"  # versioned: compilers keep on disk what they made of a name
    if not hasattr(torch.ops.tallybox, name):
        _define_operator(name, component, backend)
    return name


def _define_operator(name: str, component: Component, backend: str) -> None:
    is_opaque = backend == "cpu" or triton_is_interpreted()
    route = {} if is_opaque else {"launch": import_module("tallybox.kernels.cuda").launch_in_graph}

    # Their annotations are the operators' schemas.
    def forward(
        attention: Tensor, boxes: Tensor, mask: Tensor | None, weights: list[Tensor], max_objects: int, logits: bool,
        save_state: bool,
    ) -> Tensors:  # fmt: skip
        inputs = Inputs(attention, boxes, mask, weights, max_objects, logits)
        return component.forward(inputs, save_state, backend, **route)

    def backward(
        attention: Tensor, boxes: Tensor, mask: Tensor | None, weights: list[Tensor], max_objects: int, logits: bool,
        state: Tensor, grads: list[Tensor | None], boxes_need_grad: bool,
    ) -> list[Tensor]:  # fmt: skip
        inputs = Inputs(attention, boxes, mask, weights, max_objects, logits)
        return component.backward(inputs, state, grads, boxes_need_grad, backend, **route)

    def allocate(*arguments: Any) -> Tensors:
        *inputs, save_state = arguments
        return component.allocate(Inputs(*inputs), save_state, backend)

    def allocate_gradients(*arguments: Any) -> list[Tensor]:
        inputs = Inputs(*arguments[:6])
        return [torch.empty_like(tensor) for tensor in (*inputs[:2], *inputs.weights)]

    def save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        *tensors, weights, max_objects, logits, _ = inputs
        ctx.settings = (max_objects, logits)
        ctx.save_for_backward(*tensors, *weights, output[-1])
        ctx.set_materialize_grads(False)

    def differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        attention, boxes, mask, *weights, state = ctx.saved_tensors
        arguments = (attention, boxes, mask, weights, *ctx.settings, state, list(grads[:-1]), ctx.needs_input_grad[1])
        gradients = getattr(torch.ops.tallybox, f"{name}_backward")(*arguments)
        return (*gradients[:2], None, gradients[2:], None, None, None)

    number = len(component.result_shapes(torch.empty(0, 0), 1)) + 1
    forward.__annotations__["return"] = tuple[(Tensor,) * number]  # type: ignore[misc]  # a type that is computed
    qualified = f"tallybox::{name}"
    for suffix, function, fake in (("", forward, allocate), ("_backward", backward, allocate_gradients)):
        if is_opaque:  # a compiler calls it as it is
            schema = torch.library.infer_schema(function, mutates_args=())
            torch.library.define(qualified + suffix, schema, tags=torch.Tag.pt2_compliant_tag)
            torch.library.impl(qualified + suffix, "cpu", function)
            torch.library.register_fake(qualified + suffix, fake)
        else:  # a compiler sees its kernels
            torch.library.triton_op(qualified + suffix, function, mutates_args=())
    torch.library.register_autograd(qualified, differentiate, setup_context=save_for_backward)
    torch.library.register_autograd(f"{qualified}_backward", refuse_second_derivative)


def call_fused(component: Component, inputs: Inputs, weight_leading: torch.Size, backend: str) -> list[Tensor]:
    """Call a component's kernels on inputs whose leading dimensions broadcast; return its results.

    ``weight_leading`` are the leading dimensions of the weights, the remaining ones belong to one counter.
    """
    attention, boxes, mask, weights, max_objects, logits = inputs
    leading = [tensor.shape[:-1] for tensor in (attention, mask) if tensor is not None]
    layout = Layout.of(weight_leading, boxes.shape[:-2], *leading)
    given = Inputs(
        layout.to_list(attention, 1),
        layout.to_list(boxes, 2),
        None if mask is None else layout.to_list(mask, 1),
        [_one_list_of_counters(weight, len(weight_leading)) for weight in weights],
        max_objects,
        logits,
    )
    save_state = torch.is_grad_enabled() and any(t.requires_grad for t in (attention, boxes, *weights))
    if torch.compiler.is_compiling():
        *results, _ = getattr(torch.ops.tallybox, ensure_operator(component, backend))(*given, save_state)
    elif save_state:
        results = apply_fused(component, backend, max_objects, logits, *given[:3], *given.weights)
    else:
        *results, _ = component.forward(given, save_state, backend)
    return [layout.from_list(result) for result in results]


def _one_list_of_counters(weight: Tensor, leading: int) -> Tensor:
    """Bring ``[..., *shape]`` to ``[M, *shape]``, contiguous."""
    if leading != 1:  # a reshape that changes nothing still costs a step of autograd
        weight = weight.reshape(-1, *weight.shape[leading:])
    return weight.contiguous()
