"""One call of the component as a value: build it, solve it with a backend, compare what came out."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tallybox import Counter
from tests.support.backends import device_of
from tests.support.tolerances import Tolerance


@dataclass(frozen=True, eq=False)
class Problem:
    """Inputs of a `Counter` in float64, on the CPU."""

    attention: Tensor  # [..., N]
    boxes: Tensor  # [..., N, 4]
    weight: Tensor  # [heads, 8, segments]
    max_objects: int = 10
    mask: Tensor | None = None  # [..., N]
    logits: bool = False


def random_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_boxes(*shape: int, seed: int, extent: float = 1.0) -> Tensor:
    """Boxes that overlap now and then, ``[*shape, 4]``."""
    g = random_generator(seed)
    corner = torch.rand(*shape, 2, generator=g, dtype=torch.float64)
    size = 0.1 + 0.5 * torch.rand(*shape, 2, generator=g, dtype=torch.float64)
    return torch.cat((corner, corner + size), dim=-1) * extent


def random_weight(*shape: int, seed: int) -> Tensor:
    """Activation weights as training leaves them, some negative, ``[*shape]``."""
    return torch.randn(*shape, generator=random_generator(seed), dtype=torch.float64) + 0.5


def random_problem(
    *leading: int,
    proposals: int = 10,
    max_objects: int = 10,
    heads: int = 1,
    segments: int = 16,
    masked: bool = False,
    logits: bool = False,
    seed: int = 0,
) -> Problem:
    g = random_generator(seed)
    attention = torch.rand(*leading, proposals, generator=g, dtype=torch.float64)
    if logits:
        attention = attention.logit(eps=1e-3)
    return Problem(
        attention,
        random_boxes(*leading, proposals, seed=seed + 1),
        random_weight(heads, 8, segments, seed=seed + 2),
        max_objects,
        torch.rand(*leading, proposals, generator=g) < 0.7 if masked else None,
        logits,
    )


def build_counter(problem: Problem, backend: str, dtype: torch.dtype) -> Counter:
    heads, _, segments = problem.weight.shape
    counter = Counter(problem.max_objects, heads=heads, segments=segments, logits=problem.logits, backend=backend)
    counter.to(device_of(backend), dtype).load_state_dict({"weight": problem.weight})
    return counter


def inputs_of(problem: Problem, backend: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    """Fresh leaves for attention and boxes, and the mask, where the backend wants them."""
    device = device_of(backend)
    attention = problem.attention.detach().clone().to(device, dtype).requires_grad_()
    boxes = problem.boxes.detach().clone().to(device, dtype).requires_grad_()
    return attention, boxes, None if problem.mask is None else problem.mask.to(device)


def cotangent(like: Tensor) -> Tensor:
    """A fixed direction to pull gradients back from, the same for the same shape."""
    drawn = torch.randn(like.shape, generator=random_generator(17), dtype=torch.float64)
    return drawn.to(like.device, like.dtype)


def solve(problem: Problem, backend: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Count and features of a problem and every gradient, by name, in float64 on the CPU."""
    counter = build_counter(problem, backend, dtype)
    attention, boxes, mask = inputs_of(problem, backend, dtype)
    features = counter(attention, boxes, mask)
    count = counter.count(attention, boxes, mask)
    assert features.dtype == count.dtype == dtype
    torch.autograd.backward((features, count), (cotangent(features), cotangent(count)))
    results = {
        "count": count.detach(),
        "features": features.detach(),
        "grad_attention": attention.grad,
        "grad_boxes": boxes.grad,
        "grad_weight": counter.weight.grad,
    }
    return {name: value.to("cpu", torch.float64) for name, value in results.items()}


def count_of(problem: Problem, backend: str, dtype: torch.dtype) -> Tensor:
    counter = build_counter(problem, backend, dtype)
    with torch.no_grad():
        return counter.count(*inputs_of(problem, backend, dtype)).to("cpu", torch.float64)


def features_of(problem: Problem, backend: str, dtype: torch.dtype) -> Tensor:
    counter = build_counter(problem, backend, dtype)
    with torch.no_grad():
        return counter(*inputs_of(problem, backend, dtype)).to("cpu", torch.float64)


def assert_same(got: dict[str, Tensor], expected: dict[str, Tensor], allowed: Tolerance) -> None:
    """Assert that the results agree name by name."""
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            got[name], value, rtol=allowed.rtol, atol=allowed.atol, msg=lambda text, name=name: f"{name}: {text}"
        )
