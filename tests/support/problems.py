"""One call of a counting layer as a value: build it, solve it with a backend, compare what came out."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tallybox import Counter, PresenceCounter, PresenceWeights
from tallybox.presence.weights import calibration_edges, initial_weights
from tests.support.backends import device_of
from tests.support.tolerances import Tolerance

Layer = Counter | PresenceCounter
LAYERS: list[type[Layer]] = [Counter, PresenceCounter]

# Each layer's outputs beside its features, by the name of the method.
OUTPUTS = {Counter: ["count"], PresenceCounter: ["count", "presence", "distribution"]}


@dataclass(frozen=True, eq=False)
class Problem:
    """Inputs of a counting layer in float64, on the CPU; its weights say which layer."""

    attention: Tensor  # [..., N]
    boxes: Tensor  # [..., N, 4]
    weight: Tensor | PresenceWeights  # of a `Counter` [heads, 8, segments], or of a `PresenceCounter` [heads, ...]
    max_objects: int = 10
    mask: Tensor | None = None  # [..., N]
    logits: bool = False

    @property
    def layer(self) -> type[Layer]:
        return PresenceCounter if isinstance(self.weight, PresenceWeights) else Counter

    @property
    def heads(self) -> int:
        return len(self.weight.slope if isinstance(self.weight, PresenceWeights) else self.weight)

    def of_head(self, head: int) -> "Problem":
        """The same for one of the heads alone."""
        if isinstance(self.weight, PresenceWeights):
            return replace(self, weight=PresenceWeights(*(weight[head : head + 1] for weight in self.weight)))
        return replace(self, weight=self.weight[head : head + 1])

    def of_image(self, *image: int) -> "Problem":
        """The same for one of the images alone."""
        mask = None if self.mask is None else self.mask[image]
        return replace(self, attention=self.attention[image], boxes=self.boxes[image], mask=mask)


def random_generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_boxes(*shape: int, seed: int, extent: float = 1.0) -> Tensor:
    """Boxes that overlap now and then, ``[*shape, 4]``."""
    g = random_generator(seed)
    corner = torch.rand(*shape, 2, generator=g, dtype=torch.float64)
    size = 0.1 + 0.5 * torch.rand(*shape, 2, generator=g, dtype=torch.float64)
    return torch.cat((corner, corner + size), dim=-1) * extent


def grid(*shape: int, seed: int, parts: int = 16) -> Tensor:
    """Draw multiples of 1 / parts in [0, 1]."""
    return torch.randint(parts + 1, shape, generator=random_generator(seed), dtype=torch.float64) / parts


def square_boxes(*shape: int, seed: int) -> Tensor:
    """Squares of side 1/4 on a grid of 1/4: any two are identical, touching or apart."""
    corner = grid(*shape, 2, seed=seed, parts=4)
    return torch.cat((corner, corner + 0.25), dim=-1)


def random_weight(*shape: int, seed: int) -> Tensor:
    """Activation weights as training leaves them, some negative, ``[*shape]``."""
    return torch.randn(*shape, generator=random_generator(seed), dtype=torch.float64) + 0.5


def random_presence_weights(*leading: int, segments: int = 16, seed: int) -> PresenceWeights:
    """Weights of presence counting as training leaves them, ``[*leading, ...]``; signs of rises do not matter."""
    g = random_generator(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand((*leading, *shape), generator=g, dtype=torch.float64)

    def rises(*shape: int) -> Tensor:
        sign = torch.randint(2, (*leading, *shape), generator=g) * 2 - 1
        return sign * (0.05 + uniform(*shape))

    return PresenceWeights(
        slope=0.5 + uniform(),
        shift=uniform() - 0.5,
        calibration=rises(segments),
        evidence=0.6 * uniform(8, 9) - 0.3,
        overlap=rises(8, 9),
        headroom=rises(),
        order=rises(segments),
        step=4 * rises(),
        sharpness=0.5 + uniform(),
    )


def untrained(layer: type[Layer], heads: int = 1, segments: int = 16) -> Tensor | PresenceWeights:
    """The weights that a new layer starts from."""
    if layer is PresenceCounter:
        weights = PresenceWeights(*(weight.double() for weight in initial_weights(heads, segments)))
        edges = calibration_edges(segments, torch.zeros((), dtype=torch.float64))  # φ the identity in float64 too
        return weights._replace(calibration=edges.diff().repeat(heads, 1))
    return torch.ones(heads, 8, segments, dtype=torch.float64)


def random_problem(
    *leading: int,
    proposals: int = 10,
    max_objects: int = 10,
    heads: int = 1,
    segments: int = 16,
    masked: bool = False,
    logits: bool = False,
    seed: int = 0,
    layer: type[Layer] = Counter,
) -> Problem:
    g = random_generator(seed)
    attention = torch.rand(*leading, proposals, generator=g, dtype=torch.float64)
    if logits:
        attention = attention.logit(eps=1e-3)
    return Problem(
        attention,
        random_boxes(*leading, proposals, seed=seed + 1),
        random_weight(heads, 8, segments, seed=seed + 2)
        if layer is Counter
        else random_presence_weights(heads, segments=segments, seed=seed + 2),
        max_objects,
        torch.rand(*leading, proposals, generator=g) < 0.7 if masked else None,
        logits,
    )


def build_counter(problem: Problem, backend: str, dtype: torch.dtype) -> Layer:
    weight = problem.weight
    state = weight._asdict() if isinstance(weight, PresenceWeights) else {"weight": weight}
    segments = (weight.order if isinstance(weight, PresenceWeights) else weight).shape[-1]
    counter = problem.layer(
        problem.max_objects, heads=problem.heads, segments=segments, logits=problem.logits, backend=backend
    )
    counter.to(device_of(backend), dtype).load_state_dict(state)
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


def gradients_of(counter: Layer, attention: Tensor, boxes: Tensor) -> dict[str, Tensor]:
    """Every gradient of a call, by name, after its backward pass."""
    inputs = {"grad_attention": attention.grad, "grad_boxes": boxes.grad}
    return inputs | {f"grad_{name}": parameter.grad for name, parameter in counter.named_parameters()}


def solve(problem: Problem, backend: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Every output of a problem and every gradient of features and count, by name, in float64 on the CPU."""
    counter = build_counter(problem, backend, dtype)
    attention, boxes, mask = inputs_of(problem, backend, dtype)
    outputs = {name: getattr(counter, name)(attention, boxes, mask) for name in OUTPUTS[problem.layer]}
    outputs["features"] = counter(attention, boxes, mask)
    assert all(value.dtype == dtype for value in outputs.values())
    pulled = [outputs["features"], outputs["count"]]
    torch.autograd.backward(pulled, [cotangent(value) for value in pulled])
    results = {name: value.detach() for name, value in outputs.items()} | gradients_of(counter, attention, boxes)
    return {name: value.to("cpu", torch.float64) for name, value in results.items()}


def output_of(problem: Problem, name: str, backend: str, dtype: torch.dtype) -> Tensor:
    """One of a layer's outputs, by the name of its method."""
    counter = build_counter(problem, backend, dtype)
    with torch.no_grad():
        return getattr(counter, name)(*inputs_of(problem, backend, dtype)).to("cpu", torch.float64)


def count_of(problem: Problem, backend: str, dtype: torch.dtype) -> Tensor:
    return output_of(problem, "count", backend, dtype)


def features_of(problem: Problem, backend: str, dtype: torch.dtype) -> Tensor:
    return output_of(problem, "forward", backend, dtype)


def assert_same(got: dict[str, Tensor], expected: dict[str, Tensor], allowed: Tolerance) -> None:
    """Assert that the results agree name by name."""
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            got[name], value, rtol=allowed.rtol, atol=allowed.atol, msg=lambda text, name=name: f"{name}: {text}"
        )


def assert_same_in_scale(got: dict[str, Tensor], expected: dict[str, Tensor], allowed: Tolerance) -> None:
    """Assert that the results agree name by name, as a share of the largest entry of each, at least 1."""
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(value.abs().max().item(), 1) if value.numel() > 0 else 1
        assert_same({name: got[name]}, {name: value}, Tolerance(allowed.rtol, allowed.atol * scale))
