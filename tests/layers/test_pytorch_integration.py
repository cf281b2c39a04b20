"""Counting layers where PyTorch users put them."""

import copy
import io
import pickle
import shutil

import pytest
import torch
from torch import multiprocessing

from tallybox import Counter, PresenceWeights, count_features, presence_features
from tests.support import data_parallel
from tests.support.backends import device_of
from tests.support.problems import (
    Layer,
    assert_same,
    assert_same_in_scale,
    build_counter,
    gradients_of,
    inputs_of,
    random_problem,
    solve,
)
from tests.support.tolerances import Tolerance, tolerance
from tests.support.torch_warnings import TORCH_WARNS_ABOUT_ITSELF

HALVES = [torch.float16, torch.bfloat16]

pytestmark = TORCH_WARNS_ABOUT_ITSELF


def inputs(images: int, proposals: int, *, masked: bool, device: str = "cpu") -> tuple[torch.Tensor, ...]:
    problem = random_problem(images, proposals=proposals, masked=masked, seed=images)
    given = (problem.attention.float(), problem.boxes.float())
    return tuple(value.to(device) for value in (*given, problem.mask) if value is not None)


def trained_counter(layer: type[Layer], backend: str = "auto", *, logits: bool = False) -> Layer:
    problem = random_problem(heads=2, max_objects=5, logits=logits, seed=5, layer=layer)
    counter = build_counter(problem, "reference" if backend == "auto" else backend, torch.float32)
    counter.backend = backend
    return counter


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("proposals", [4, 8], ids=["below max_objects", "above max_objects"])
def test_half_precision_inputs_are_computed_in_float32(layer, backend, half, proposals):
    device = device_of(backend)
    counter = trained_counter(layer, backend)
    attention, boxes, mask = inputs(3, proposals, masked=True, device=device)
    low = attention.to(half).requires_grad_(), (640 * boxes).to(half).requires_grad_()
    rounded = tuple(value.detach().float().requires_grad_() for value in low)

    got, expected = counter(*low, mask), counter(*rounded, mask)
    assert got.dtype == counter.count(*low, mask).dtype == torch.float32
    assert torch.equal(got, expected)
    for features in (got, expected):
        features.pow(2).sum().backward()
    for low_leaf, leaf in zip(low, rounded, strict=True):
        assert low_leaf.grad.dtype == half
        torch.testing.assert_close(low_leaf.grad, leaf.grad.to(half))


@pytest.mark.parametrize("half", HALVES)
def test_a_counter_in_half_precision_computes_in_float32(layer, backend, half):
    attention, boxes, mask = inputs(3, 8, masked=True, device=device_of(backend))
    counter = trained_counter(layer, backend).to(half)
    rounded = copy.deepcopy(counter).float()
    got = counter(attention.to(half), boxes.to(half), mask)
    assert torch.equal(got, rounded(attention.to(half).float(), boxes.to(half).float(), mask))
    got.pow(2).sum().backward()
    assert all(parameter.grad.dtype == half for parameter in counter.parameters())


@pytest.mark.parametrize("given", [torch.float32, *HALVES])
def test_under_autocast_it_computes_in_float32(layer, backend, given):
    device = device_of(backend)
    counter = trained_counter(layer, backend)
    attention, boxes, mask = inputs(3, 8, masked=True, device=device)
    attention, boxes = attention.to(given), boxes.to(given)
    expected = counter(attention.float(), boxes.float(), mask)
    with torch.autocast(device, dtype=torch.bfloat16):
        got = counter(attention, boxes, mask)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected, **tolerance(backend, torch.float32, layer)._asdict())


def test_autocast_leaves_float64_alone(layer, float64_backend):
    problem = random_problem(2, proposals=8, heads=2, seed=1, layer=layer)
    expected = solve(problem, float64_backend, torch.float64)
    with torch.autocast(device_of(float64_backend), dtype=torch.bfloat16):
        got = solve(problem, float64_backend, torch.float64)
    assert_same(got, expected, tolerance(float64_backend, torch.float64, layer))


def compiled_equals_plain(compiled, counter: Layer, given: tuple[torch.Tensor, ...], backend: str) -> None:
    """Assert that features and gradients of a compiled call are those of a plain one."""
    results = []
    for call in (compiled, counter):
        attention, boxes, *mask = given
        attention, boxes = attention.clone().requires_grad_(), boxes.clone().requires_grad_()
        for value in (attention, boxes, *mask):
            torch._dynamo.mark_dynamic(value, 0)
        counter.zero_grad()
        features = call(attention, boxes, *mask)
        features.pow(2).sum().backward()
        results.append({"features": features.detach(), **gradients_of(counter, attention, boxes)})
    assert_same_in_scale(*results, tolerance(backend, torch.float32, type(counter)))


@pytest.mark.parametrize(
    ("proposals", "masked", "generate_code"),
    [
        pytest.param(5, False, False, id="below max_objects"),
        pytest.param(8, True, True, id="above max_objects, masked, as code", marks=pytest.mark.slow),
    ],
)
@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_as_one_graph_it_is_correct_for_any_batch_size_without_recompiling(
    layer, backend, proposals, masked, generate_code
):
    counter = trained_counter(layer, backend)
    if generate_code and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("needs a C++ compiler")
    compiled = torch.compile(counter, fullgraph=True, backend="inductor" if generate_code else "aot_eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for images in (3, 5, 16):
            given = inputs(images, proposals, masked=masked, device=device_of(backend))
            compiled_equals_plain(compiled, counter, given, backend)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_without_a_named_backend_it_is_served_by_the_fused_one(layer):
    pytest.importorskip("numba", reason="needs a fused backend")
    targets = []

    def note_targets(module, _):
        targets.extend(str(node.target) for node in module.graph.nodes)
        return module

    torch.compile(layer(5), fullgraph=True, backend=note_targets)(*inputs(3, 5, masked=False))
    assert [name for name in targets if name.startswith("tallybox.")]


@pytest.mark.usefixtures("fresh_compiler")
def test_count_and_function_compile_as_one_graph(layer, backend):
    counter = trained_counter(layer, backend)
    attention, boxes, mask = inputs(3, 8, masked=True, device=device_of(backend))
    allowed = tolerance(backend, torch.float32, layer)._asdict()

    count = torch.compile(counter.count, fullgraph=True, backend="aot_eager")(attention, boxes, mask)
    torch.testing.assert_close(count, counter.count(attention, boxes, mask), **allowed)

    def function(attention, boxes, weight):
        features = count_features if layer is Counter else presence_features
        return features(attention, boxes, weight, max_objects=5, mask=mask, backend=backend)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    of_first_head = [parameter[0].detach() for parameter in counter.parameters()]
    weight = of_first_head[0] if layer is Counter else PresenceWeights(*of_first_head)
    torch.testing.assert_close(compiled(attention, boxes, weight), function(attention, boxes, weight), **allowed)


def free_batch(masked: bool) -> dict[str, dict[int, object]]:
    return {name: {0: torch.export.Dim.DYNAMIC} for name in ("attention", "boxes", "mask")[: 3 if masked else 2]}


EXPORTED = pytest.mark.parametrize(
    ("proposals", "masked", "logits"),
    [(4, False, True), (9, True, False)],
    ids=["below max_objects", "above max_objects, masked"],
)


@EXPORTED
def test_an_exported_program_takes_any_batch_size(layer, proposals, masked, logits):
    counter = trained_counter(layer, logits=logits)
    exported = torch.export.export(
        counter, inputs(3, proposals, masked=masked), dynamic_shapes=free_batch(masked), strict=False
    )
    for images in (1, 2, 7):
        given = inputs(images, proposals, masked=masked)
        torch.testing.assert_close(
            exported.module()(*given), counter(*given), **tolerance("reference", torch.float32, layer)._asdict()
        )


@pytest.mark.slow
@EXPORTED
def test_an_onnx_model_takes_any_batch_size_and_gives_the_same_numbers(layer, tmp_path, proposals, masked, logits):
    onnxruntime = pytest.importorskip("onnxruntime")
    counter = trained_counter(layer, logits=logits).eval()
    path = tmp_path / "counter.onnx"
    torch.onnx.export(
        counter,
        inputs(3, proposals, masked=masked),
        path,
        dynamo=True,
        dynamic_shapes=free_batch(masked),
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    for images in (1, 2, 7):
        given = inputs(images, proposals, masked=masked)
        (got,) = session.run(None, dict(zip(names, (value.numpy() for value in given), strict=True)))
        torch.testing.assert_close(
            torch.from_numpy(got), counter(*given).detach(), **tolerance("reference", torch.float32, layer)._asdict()
        )


def through_pickle(counter: Layer) -> Layer:
    return pickle.loads(pickle.dumps(counter))


def through_state_dict(counter: Layer) -> Layer:
    file = io.BytesIO()
    torch.save(counter.state_dict(), file)
    file.seek(0)
    first = next(counter.parameters())
    again = type(counter)(counter.max_objects, heads=len(first), logits=counter.logits, backend=counter.backend)
    again.to(first.device)
    again.load_state_dict(torch.load(file, weights_only=True))
    return again


@pytest.mark.parametrize("way", [copy.deepcopy, through_pickle, through_state_dict])
def test_a_copy_is_an_equal_and_separate_counter(layer, backend, way):
    counter = trained_counter(layer, backend, logits=True)
    given = inputs(3, 8, masked=True, device=device_of(backend))
    expected = counter(*given)
    again = way(counter)
    assert repr(again) == repr(counter)
    assert torch.equal(again(*given), expected)
    with torch.no_grad():
        rises = again.weight if layer is Counter else again.calibration
        rises.mul_(torch.linspace(1, 2, 16, device=rises.device))
    assert torch.equal(counter(*given), expected)
    assert not torch.equal(again(*given), expected)


def test_every_parameter_gets_a_gradient(layer, backend, dtype):
    problem = random_problem(16, proposals=12, heads=3, segments=8, logits=True, seed=2, layer=layer)
    counter = build_counter(problem, backend, dtype)
    counter(*inputs_of(problem, backend, dtype)).pow(2).sum().backward()
    for name, parameter in counter.named_parameters():
        functions = parameter.grad.flatten(0, 1) if layer is Counter else parameter.grad.reshape(3, -1)
        assert (functions.abs().sum(-1) > 0).all(), f"{name}: a function without a gradient"


@pytest.mark.slow
def test_two_processes_train_together_and_get_the_gradients_of_one(layer, tmp_path):
    multiprocessing.spawn(data_parallel.train_share, args=(str(tmp_path), layer), nprocs=data_parallel.WORLD_SIZE)
    alone = data_parallel.train(data_parallel.build_model(layer), *data_parallel.batch())
    assert {f"counter.{name}" for name, _ in layer().named_parameters()} < set(alone)
    for rank in range(data_parallel.WORLD_SIZE):
        together = torch.load(tmp_path / f"gradients_{rank}.pt", weights_only=True)
        assert_same(together, alone, Tolerance(rtol=1e-9, atol=1e-12))
