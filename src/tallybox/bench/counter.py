"""`tallybox bench counter`: both components, fused against reference, on the sizes of the real tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tallybox.bench.measure import Row, compare
from tallybox.counter.functional import count_features
from tallybox.errors import TallyboxError
from tallybox.kernels.dispatch import Backend, choose_backend
from tallybox.presence.functional import presence_features
from tallybox.presence.weights import PresenceWeights, initial_weights

# Images and boxes: the toy task's batch; 36 and 100 proposals of bottom-up attention.
CPU_SIZES = ((1024, 10), (256, 36), (16, 100))
CUDA_SIZES = ((1024, 10), (256, 36), (16, 100), (65_536, 10), (4096, 36), (256, 100))

# The reference of the paper's component needs 37 GiB for 256 x 100, so only presence counting goes on from there.
CUDA_SIZES_OF_PRESENCE = (*CUDA_SIZES, (4096, 100))

# Largest difference from the float64 reference, relative to the largest value, that rounding explains.
AGREEMENT = 2e-4

# The largest count that presence counting tells apart; the paper's component has as many as there are boxes.
MAX_OBJECTS_OF_PRESENCE = 10


class Inputs(NamedTuple):
    """Random proposals, the uneven weights of a component, and a gradient for its features."""

    attention: Tensor
    boxes: Tensor
    weights: tuple[Tensor, ...]
    grad_features: Tensor


def paper_weights(draw: Callable[..., Tensor]) -> tuple[Tensor, ...]:
    """Draw uneven activations."""
    return ((draw(8, 16) + 0.05).requires_grad_(),)


def paper_features(inputs: Inputs, backend: Backend) -> Tensor:
    """Features of the paper's component."""
    number = inputs.attention.shape[-1]
    return count_features(inputs.attention, inputs.boxes, inputs.weights[0], max_objects=number, backend=backend)


def presence_weights(draw: Callable[..., Tensor]) -> tuple[Tensor, ...]:
    """Draw functions that are somewhat learned."""
    start = (weight[0] for weight in initial_weights(heads=1, segments=16))
    return tuple((weight.to(draw(1)) + draw(*weight.shape) * 0.1).requires_grad_() for weight in start)


def features_of_presence(inputs: Inputs, backend: Backend) -> Tensor:
    """Features of presence counting."""
    weights = PresenceWeights(*inputs.weights)
    return presence_features(
        inputs.attention, inputs.boxes, weights, max_objects=MAX_OBJECTS_OF_PRESENCE, backend=backend
    )


class Nothing(torch.autograd.Function):
    """What any fused component costs before it computes: outputs are allocated, and left as they are."""

    @staticmethod
    def forward(ctx: Any, attention: Tensor, boxes: Tensor, weight: Tensor) -> Tensor:
        """Return features of the right shape."""
        ctx.save_for_backward(attention, boxes, weight)
        return attention.new_empty(len(attention), attention.shape[-1] + 1)

    @staticmethod
    def backward(ctx: Any, grad_features: Tensor) -> tuple[Tensor, ...]:
        """Return gradients of the right shapes."""
        return tuple(torch.empty_like(given) for given in ctx.saved_tensors)


def no_features(inputs: Inputs, backend: Backend) -> Tensor:
    """Features of nothing, or of the paper's component where that is the reference."""
    if backend == "reference":
        return paper_features(inputs, backend)
    apply: Any = Nothing.apply  # torch leaves it untyped
    features: Tensor = apply(inputs.attention, inputs.boxes, *inputs.weights)
    return features


class Component(NamedTuple):
    """What is measured: how it is named in a case, and how it is called."""

    prefix: str
    weights: Callable[[Callable[..., Tensor]], tuple[Tensor, ...]]
    features: Callable[[Inputs, Backend], Tensor]
    feature_number: Callable[[int], int]  # for so many boxes


PAPER = Component("", paper_weights, paper_features, lambda boxes: boxes + 1)
NOTHING = Component("nothing instead of ", paper_weights, no_features, lambda boxes: boxes + 1)
PRESENCE = Component("presence ", presence_weights, features_of_presence, lambda boxes: MAX_OBJECTS_OF_PRESENCE + 2)


def random_inputs(
    component: Component, images: int, boxes: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> Inputs:
    """Draw proposals of all degrees of overlap, and a gradient for their features."""
    generator = torch.Generator().manual_seed(images * 1000 + boxes)

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    corner, size = draw(images, boxes, 2) * 0.7, 0.05 + draw(images, boxes, 2) * 0.25
    return Inputs(
        attention=draw(images, boxes).requires_grad_(),
        boxes=torch.cat((corner, corner + size), dim=-1).requires_grad_(),
        weights=component.weights(draw),
        grad_features=draw(images, component.feature_number(boxes)) - 0.5,
    )


def forward(component: Component, inputs: Inputs, backend: Backend) -> Tensor:
    """Compute features without gradients."""
    with torch.no_grad():
        return component.features(inputs, backend)


def forward_backward(component: Component, inputs: Inputs, backend: Backend) -> tuple[Tensor, ...]:
    """Compute features and the gradients of attention, boxes and weights."""
    features = component.features(inputs, backend)
    differentiated = (inputs.attention, inputs.boxes, *inputs.weights)
    return features, *torch.autograd.grad(features, differentiated, inputs.grad_features)


def forward_backward_in_one_thread(component: Component, inputs: Inputs, backend: Backend) -> tuple[Tensor, ...]:
    """Do the same without handing over to autograd's own thread for the GPU.

    That takes longer than a small call. A training step pays for it once, a layer measured by itself every time.
    """
    with torch.autograd.set_multithreading_enabled(False):
        return forward_backward(component, inputs, backend)


PASSES: dict[str, Callable[[Component, Inputs, Backend], object]] = {
    "forward": forward,
    "forward+backward": forward_backward,
}
PASSES_ON_CUDA = PASSES | {"forward+backward-in-one-thread": forward_backward_in_one_thread}


def check_agreement(component: Component, backend: Backend, device: torch.device, boxes: int) -> None:
    """Raise unless a backend's features and gradients are the float64 reference's, up to rounding."""
    ours = forward_backward(component, random_inputs(component, 8, boxes, device), backend)
    exactly = random_inputs(component, 8, boxes, torch.device("cpu"), torch.float64)
    exact = forward_backward(component, exactly, "reference")
    names = ("features", "attention", "boxes", *(["weight"] * len(exactly.weights)))
    for name, got, expected in zip(names, ours, exact, strict=True):
        largest = expected.abs().max().clamp(min=1e-6)  # a single box has no gradient at all
        error = (got.detach().cpu().double() - expected).abs().max() / largest
        if not error < AGREEMENT:
            raise TallyboxError(
                f'backend "{backend}" must agree with the reference before it is timed, but its {name} for '
                f"{boxes} boxes differ by {error:.1e} of the largest value"
            )


def bench_counter(device: torch.device, seconds: float = 2.0) -> Iterator[Row]:
    """Yield a row for each component, size and pass: the backend that "auto" chooses beside the reference."""
    on_cuda = device.type == "cuda"
    if on_cuda:  # where a small call is bound by what PyTorch itself takes on the host
        yield from _bench(NOTHING, CUDA_SIZES[:1], device, seconds)
    yield from _bench(PAPER, CUDA_SIZES if on_cuda else CPU_SIZES, device, seconds)
    yield from _bench(PRESENCE, CUDA_SIZES_OF_PRESENCE if on_cuda else CPU_SIZES, device, seconds)


def _bench(
    component: Component, sizes: tuple[tuple[int, int], ...], device: torch.device, seconds: float
) -> Iterator[Row]:
    for images, boxes in sizes:
        fused, reason = choose_backend("auto", device=device, dtype=torch.float32, boxes=boxes)
        if fused == "reference":
            raise TallyboxError(f"there is nothing to compare on {device}: {reason}")
        if component is not NOTHING:
            check_agreement(component, "auto", device, boxes)
        inputs = random_inputs(component, images, boxes, device)
        for name, run in (PASSES_ON_CUDA if device.type == "cuda" else PASSES).items():
            ours, reference = (partial(run, component, inputs, backend) for backend in ("auto", "reference"))
            yield compare(f"{component.prefix}{fused} {name} {images}x{boxes}", ours, reference, device, seconds)
