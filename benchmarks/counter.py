"""Time both layers, fused compared with the reference, on the sizes of the real tasks.

python -m benchmarks.counter [--device cuda] [--json]
python -m benchmarks.counter --component examples.soft_nms:SoftNms

`Counter` keeps all boxes, and in the cases "n=10" the ten of largest attention, as the paper does. "Compiled" compares
`torch.compile` of the fused layer with eager calls of it, "reduce-overhead" that mode with the default one, "graph" a
CUDA graph of forward and backward with eager calls, "one-thread" eager calls whose backward pass stays on the calling
thread with those that hand it to PyTorch's thread for the GPU. "First call" is the time until a new process has
features and gradients: kernels are compiled, or loaded if an earlier process has compiled them; "new shape" the time
for another number of images and boxes after that. Your own component is compared with the reference of `Counter`; its
numbers are not checked.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import click
import torch
from benchmarks.command import benchmark_command
from benchmarks.measure import BenchRow, compare, make_row
from torch import Tensor, nn

from tallybox.components import component_name, load_component
from tallybox.counter.module import Counter
from tallybox.errors import TallyboxError
from tallybox.kernels.dispatch import Backend, choose_backend
from tallybox.presence.module import PresenceCounter

# Images and boxes: the toy task's batch; 36 and 100 proposals of bottom-up attention.
CPU_SIZES = ((1024, 10), (256, 36), (16, 100))
CUDA_SIZES = ((1024, 10), (256, 36), (16, 100), (65_536, 10), (4096, 36), (256, 100))

# The reference of the paper's component needs 37 GiB for 256 x 100, so only presence counting goes on from there.
CUDA_SIZES_OF_PRESENCE = (*CUDA_SIZES, (4096, 100))

# The paper keeps this many boxes.
PAPERS_OBJECTS = 10

# Largest difference from the float64 reference, relative to the largest value, that rounding explains.
AGREEMENT = 2e-4

# The layers, by how the name of a case begins.
PAPER, PRESENCE, NOTHING = "", "presence ", "nothing instead of "


class EmptyFunction(torch.autograd.Function):
    """Allocates features and gradients, and computes none of them."""

    @staticmethod
    def forward(ctx: Any, attention: Tensor, boxes: Tensor, weight: Tensor) -> Tensor:
        """Return features of the right shape."""
        ctx.save_for_backward(attention, boxes, weight)
        return attention.new_empty(len(attention), attention.shape[-1] + 1)

    @staticmethod
    def backward(ctx: Any, grad_features: Tensor) -> tuple[Tensor, ...]:
        """Return gradients of the right shapes."""
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors)


class EmptyCounter(Counter):
    """What any fused layer costs before it computes."""

    def forward(self, attention: Tensor, boxes: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return features that are not computed."""
        apply: Any = EmptyFunction.apply  # torch leaves it untyped
        features: Tensor = apply(attention, boxes, self.weight)
        return features


class OwnComponent(nn.Module):
    """Your own component, called as a layer."""

    def __init__(self, component: nn.Module) -> None:
        super().__init__()
        self.component = component

    def forward(self, attention: Tensor, boxes: Tensor) -> Tensor:
        """Return its features; every proposal is real."""
        features: Tensor = self.component(attention, boxes, torch.ones_like(attention, dtype=torch.bool))
        return features


class LayerCall(NamedTuple):
    """A layer, random proposals for it, and a gradient for its features."""

    layer: nn.Module
    attention: Tensor  # [images, boxes]
    boxes: Tensor  # [images, boxes, 4]
    grad_features: Tensor  # [images, features]

    def forward(self) -> Tensor:
        """Compute features without gradients."""
        with torch.no_grad():
            features: Tensor = self.layer(self.attention, self.boxes)
        return features

    def forward_backward(self) -> dict[str, Tensor]:
        """Compute features and the gradients of attention, boxes and weights."""
        features = self.layer(self.attention, self.boxes)
        inputs = {"attention": self.attention, "boxes": self.boxes, **dict(self.layer.named_parameters())}
        given = list(inputs.values())
        gradients = torch.autograd.grad(features, given, self.grad_features, allow_unused=True, materialize_grads=True)
        return {"features": features, **dict(zip(inputs, gradients, strict=True))}


PASSES: dict[str, Callable[[LayerCall], object]] = {
    "forward": LayerCall.forward,
    "forward+backward": LayerCall.forward_backward,
}


def make_layer(name: str, keep: int, backend: Backend) -> nn.Module:
    """Return a layer by its name, a counter of ``keep`` boxes.

    The reference of nothing and of your own component (``package.module:Class``) is the paper's component.
    """
    if ":" in name and backend != "reference":
        return OwnComponent(load_component(name)(keep))
    if name == PRESENCE:
        return PresenceCounter(backend=backend)
    is_empty = name == NOTHING and backend != "reference"
    return (EmptyCounter if is_empty else Counter)(keep, backend=backend)


def random_call(
    name: str,
    backend: Backend,
    images: int,
    boxes: int,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    keep: int | None = None,
) -> LayerCall:
    """Draw proposals of all degrees of overlap and uneven weights; they are the same for every backend."""
    generator = torch.Generator().manual_seed(images * 1000 + boxes)

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    corner, size = draw(images, boxes, 2) * 0.7, 0.05 + draw(images, boxes, 2) * 0.25
    attention = draw(images, boxes).requires_grad_()
    corners = torch.cat((corner, corner + size), dim=-1).requires_grad_()
    layer = make_layer(name, keep or boxes, backend).to(device, dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            noise = draw(*parameter.shape)
            # Uneven activations; functions of presence that are somewhat learned.
            parameter.copy_(parameter + 0.1 * noise if name == PRESENCE else noise + 0.05)
        features = layer(attention[:1], corners[:1]).shape[-1]
    return LayerCall(layer, attention, corners, draw(images, features) - 0.5)


def check_agreement(name: str, backend: Backend, device: torch.device, boxes: int) -> None:
    """Raise unless a backend's features and gradients are the float64 reference's, up to rounding."""
    ours = random_call(name, backend, 8, boxes, device).forward_backward()
    exact = random_call(name, "reference", 8, boxes, torch.device("cpu"), torch.float64).forward_backward()
    for quantity, expected in exact.items():
        largest = expected.abs().max().clamp(min=1e-6)  # a single box has no gradient at all
        error = (ours[quantity].detach().cpu().double() - expected).abs().max() / largest
        if not error < AGREEMENT:
            raise TallyboxError(
                f'backend "{backend}" must agree with the reference before it is timed, but its {quantity} for '
                f"{boxes} boxes differ by {error:.1e} of the largest value"
            )


def other_ways(ours: LayerCall, case: str, device: torch.device, seconds: float) -> Iterator[BenchRow]:
    """Yield rows for the compiled layer, and on a GPU for CUDA graphs of it and for backward passes on one thread."""
    compiled = ours._replace(layer=torch.compile(ours.layer)).forward_backward
    yield compare(case.format("compiled"), compiled, ours.forward_backward, device, seconds)
    if device.type != "cuda":
        return
    reduced = ours._replace(layer=torch.compile(ours.layer, mode="reduce-overhead"))

    def run_reduced() -> object:
        torch.compiler.cudagraph_mark_step_begin()
        return reduced.forward_backward()

    def run_on_this_thread() -> object:
        with torch.autograd.set_multithreading_enabled(False):
            return ours.forward_backward()

    yield compare(case.format("reduce-overhead"), run_reduced, compiled, device, seconds)
    graph = graph_of(deepcopy(ours).forward_backward)  # of tensors that no other stream has used
    yield compare(case.format("graph"), graph, ours.forward_backward, device, seconds)
    yield compare(case.format("one-thread"), run_on_this_thread, ours.forward_backward, device, seconds)


def graph_of(run: Callable[[], object]) -> Callable[[], object]:
    """Capture a call as a CUDA graph; return what replays it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = run()
    return lambda: (graph.replay(), results)


def first_calls(name: str, fused: str, sizes: Sequence[tuple[int, int]], device: torch.device) -> Iterator[BenchRow]:
    """Time the first features and gradients of this process at each size, on the fused backend and on the reference."""
    for label, (images, boxes) in zip(("first-call", "new-shape"), sizes, strict=False):
        milliseconds = []
        for backend in ("auto", "reference"):
            start = time.perf_counter()
            results = random_call(name, backend, images, boxes, device).forward_backward()
            results["features"].sum().item()  # waits for a GPU
            milliseconds.append(1e3 * (time.perf_counter() - start))
        yield make_row(f"{name}{fused} {label} {images}x{boxes}", *milliseconds)


def bench_counter(
    device: torch.device,
    seconds: float = 2.0,
    cpu_sizes: tuple[tuple[int, int], ...] = CPU_SIZES,
    with_compiler: bool = True,
    component: str | None = None,
) -> Iterator[BenchRow]:
    """Yield a row for each layer, size and pass: the backend that "auto" chooses compared with the reference."""
    if component is not None:
        yield from bench_component(component, device, seconds, cpu_sizes)
        return
    sizes: dict[str, tuple[tuple[int, int], ...]] = {PAPER: cpu_sizes, PRESENCE: cpu_sizes}
    if device.type == "cuda":  # where a small call is bound by what PyTorch itself takes on the host
        sizes = {NOTHING: CUDA_SIZES[:1], PAPER: CUDA_SIZES, PRESENCE: CUDA_SIZES_OF_PRESENCE}
    for name, images, boxes in ((name, *size) for name, of_layer in sizes.items() for size in of_layer):
        fused = choose_backend("auto", device=device, dtype=torch.float32, boxes=boxes)
        if fused == "reference":
            raise TallyboxError(f"No fused backend serves {device}.")
        if name != NOTHING and (images, boxes) == sizes[name][0]:
            yield from first_calls(name, fused, ((images, boxes), (images // 2 + 1, boxes - 1)), device)
        if name != NOTHING:
            check_agreement(name, "auto", device, boxes)
        for keep in (boxes, PAPERS_OBJECTS) if name == PAPER and boxes > PAPERS_OBJECTS else (boxes,):
            ours = random_call(name, "auto", images, boxes, device, keep=keep)
            reference = random_call(name, "reference", images, boxes, device, keep=keep)
            kept = "" if keep == boxes else f" n={keep}"
            for label, run in PASSES.items():
                case = f"{name}{fused} {label} {images}x{boxes}{kept}"
                yield compare(case, partial(run, ours), partial(run, reference), device, seconds)
            if name != NOTHING and with_compiler and (images, boxes) in CPU_SIZES and keep == boxes:
                torch.compiler.reset()
                yield from other_ways(ours, f"{name}{fused} {{}} {images}x{boxes}{kept}", device, seconds)


def bench_component(
    component: str, device: torch.device, seconds: float, sizes: tuple[tuple[int, int], ...]
) -> Iterator[BenchRow]:
    """Yield a row for each size and pass of your own component, compared with the reference of the paper's."""
    name = component_name(load_component(component)(PAPERS_OBJECTS))
    for images, boxes in sizes:
        ours, reference = (random_call(component, backend, images, boxes, device) for backend in ("auto", "reference"))
        for label, run in PASSES.items():
            case = f"{name} {label} {images}x{boxes}"
            yield compare(case, partial(run, ours), partial(run, reference), device, seconds)


if __name__ == "__main__":
    own = click.Option(["--component"], metavar="NAME", help="Time your own component: package.module:Class.")
    benchmark_command(bench_counter, own)()
