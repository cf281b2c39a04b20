"""`tallybox bench counter`: each fused backend against the reference, on the sizes of the real tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from tallybox.bench.measure import Row, median_ms, peak_bytes
from tallybox.counter.dispatch import Backend, choose_backend
from tallybox.counter.functional import count_features
from tallybox.errors import TallyboxError

# Images and boxes: the toy task's batch; 36 and 100 proposals of bottom-up attention.
CPU_SIZES = ((1024, 10), (256, 36), (16, 100))
CUDA_SIZES = ((1024, 10), (256, 36), (16, 100), (65_536, 10), (4096, 36), (256, 100))

# Largest difference from the float64 reference, relative to the largest value, that rounding explains.
AGREEMENT = 2e-4


class Inputs(NamedTuple):
    """Random proposals and a counter with uneven activations."""

    attention: Tensor
    boxes: Tensor
    weight: Tensor
    grad_features: Tensor


def random_inputs(images: int, boxes: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Inputs:
    """Draw proposals of all degrees of overlap, and a gradient for their features."""
    generator = torch.Generator().manual_seed(images * 1000 + boxes)

    def draw(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64).to(device, dtype)

    corner, size = draw(images, boxes, 2) * 0.7, 0.05 + draw(images, boxes, 2) * 0.25
    return Inputs(
        attention=draw(images, boxes).requires_grad_(),
        boxes=torch.cat((corner, corner + size), dim=-1).requires_grad_(),
        weight=(draw(8, 16) + 0.05).requires_grad_(),
        grad_features=draw(images, boxes + 1) - 0.5,
    )


def forward(inputs: Inputs, backend: Backend) -> Tensor:
    """Compute features without gradients."""
    with torch.no_grad():
        return count_features(*inputs[:3], max_objects=inputs.attention.shape[-1], backend=backend)


def forward_backward(inputs: Inputs, backend: Backend) -> tuple[Tensor, ...]:
    """Compute features and the gradients of attention, boxes and weight."""
    features = count_features(*inputs[:3], max_objects=inputs.attention.shape[-1], backend=backend)
    return features, *torch.autograd.grad(features, inputs[:3], inputs.grad_features)


PASSES: dict[str, Callable[[Inputs, Backend], object]] = {
    "forward": forward,
    "forward+backward": forward_backward,
}


def check_agreement(backend: Backend, device: torch.device, boxes: int) -> None:
    """Raise unless a backend's features and gradients are the float64 reference's, up to rounding."""
    ours = forward_backward(random_inputs(8, boxes, device), backend)
    exact = forward_backward(random_inputs(8, boxes, torch.device("cpu"), torch.float64), "reference")
    for name, got, expected in zip(("features", "attention", "boxes", "weight"), ours, exact, strict=True):
        largest = expected.abs().max().clamp(min=1e-6)  # a single box has no gradient at all
        error = (got.detach().cpu().double() - expected).abs().max() / largest
        if not error < AGREEMENT:
            raise TallyboxError(
                f'backend "{backend}" must agree with the reference before it is timed, but its {name} for '
                f"{boxes} boxes differ by {error:.1e} of the largest value"
            )


def bench_counter(device: torch.device, seconds: float = 2.0) -> Iterator[Row]:
    """Yield a row for each size and pass: the backend that "auto" chooses beside the reference."""
    sizes = CUDA_SIZES if device.type == "cuda" else CPU_SIZES
    for images, boxes in sizes:
        fused, reason = choose_backend("auto", device=device, dtype=torch.float32, boxes=boxes)
        if fused == "reference":
            raise TallyboxError(f"there is nothing to compare on {device}: {reason}")
        check_agreement("auto", device, boxes)
        inputs = random_inputs(images, boxes, device)
        for name, run in PASSES.items():
            ours, reference = partial(run, inputs, "auto"), partial(run, inputs, "reference")
            # Memory first, and ours first: what a large call leaves behind hides what a small one needs.
            peak, reference_peak = peak_bytes(ours, device), peak_bytes(reference, device)
            milliseconds = median_ms(ours, device, seconds=seconds)
            reference_milliseconds = median_ms(reference, device, seconds=seconds)
            yield Row(
                case=f"{fused} {name} {images}x{boxes}",
                median_ms=round(milliseconds, 4),
                reference_ms=round(reference_milliseconds, 4),
                speedup=round(reference_milliseconds / milliseconds, 1),
                peak_bytes=peak,
                reference_peak_bytes=reference_peak,
            )
