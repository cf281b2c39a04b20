import pytest
import torch
from torch import nn

from tallybox import Counter, TallyboxError, compat
from tests.support.problems import assert_same, cotangent, random_boxes, random_problem, random_weight
from tests.support.reference_cases import CASE_NUMBERS, ReferenceCase, load_case, published_state_dict
from tests.support.tolerances import PUBLISHED, PUBLISHED_WITHOUT_UNION_FLOOR

USED = 8


def published_counter(case: ReferenceCase) -> compat.Counter:
    return compat.Counter(case.objects, already_sigmoided=not case.logits).double()


def run_published(counter: compat.Counter, case: ReferenceCase, unit: float = 1.0) -> dict[str, torch.Tensor]:
    """Features and every gradient of the published interface, with the boxes in another unit."""
    attention = case.attention.clone().requires_grad_()
    boxes = case.boxes.clone().requires_grad_()
    features = counter(boxes.mT * unit, attention)
    features.backward(case.grad_features)
    return {
        "features": features.detach(),
        "grad_attention": attention.grad,
        "grad_boxes": boxes.grad,
        "grad_weights": torch.stack([counter.f[k].weight.grad for k in range(USED)]),
    }


def run_counter(case: ReferenceCase) -> dict[str, torch.Tensor]:
    counter = Counter.from_published(published_state_dict(case.weights), case.objects, logits=case.logits)
    attention = case.attention.clone().requires_grad_()
    boxes = case.boxes.clone().requires_grad_()
    features = counter(attention, boxes)
    features.backward(case.grad_features)
    return {
        "features": features.detach(),
        "grad_attention": attention.grad,
        "grad_boxes": boxes.grad,
        "grad_weights": nn.functional.pad(counter.weight.grad[0], (1, 0)),
    }


def stored_results(case: ReferenceCase) -> dict[str, torch.Tensor]:
    return {name: getattr(case, name) for name in ("features", "grad_attention", "grad_boxes", "grad_weights")}


@pytest.mark.parametrize("number", CASE_NUMBERS)
@pytest.mark.parametrize("entries", [17, 16])
@pytest.mark.parametrize(("activations", "prefix"), [(16, ""), (8, ""), (16, "module.")], ids=str)
def test_published_interface_gives_the_stored_features_and_gradients(number, activations, entries, prefix):
    case = load_case(number)
    counter = published_counter(case)
    counter.load_state_dict(published_state_dict(case.weights, activations=activations, entries=entries, prefix=prefix))
    assert_same(run_published(counter, case), stored_results(case), PUBLISHED)


@pytest.mark.parametrize("number", CASE_NUMBERS)
def test_converted_counter_gives_the_stored_features_and_gradients_up_to_the_published_constant(number):
    case = load_case(number)
    assert_same(run_counter(case), stored_results(case), PUBLISHED_WITHOUT_UNION_FLOOR)


@pytest.mark.parametrize("number", CASE_NUMBERS)
def test_converted_counter_agrees_with_the_published_interface_where_the_constant_vanishes(number):
    """In a unit a thousand times smaller the published 1e-12 is nothing; `Counter` has no unit."""
    case = load_case(number)
    counter = published_counter(case)
    counter.load_state_dict(published_state_dict(case.weights))
    assert_same(run_counter(case), run_published(counter, case, unit=1e3), PUBLISHED)


@pytest.mark.parametrize(("activations", "entries"), [(16, 17), (8, 16)])
def test_a_checkpoint_of_a_larger_model_loads(activations, entries):
    case = load_case(0)
    model = nn.ModuleDict({"text": nn.Linear(2, 3), "counter": published_counter(case)}).double()
    checkpoint = model.text.state_dict(prefix="text.")
    checkpoint |= published_state_dict(case.weights, activations=activations, entries=entries, prefix="counter.")
    model.load_state_dict(checkpoint)
    got = run_published(model.counter, case)
    torch.testing.assert_close(got["features"], case.features, rtol=0, atol=PUBLISHED.atol)


def test_its_own_checkpoint_has_the_published_keys_and_shapes_and_loads_back():
    case = load_case(1)
    counter = published_counter(case)
    counter.load_state_dict(published_state_dict(case.weights))
    saved = counter.state_dict()
    assert {key: len(value) for key, value in saved.items()} == {f"f.{k}.weight": 17 for k in range(16)}
    again = published_counter(case)
    again.load_state_dict(saved)
    assert all(torch.equal(again.state_dict()[key], value) for key, value in saved.items())


def bad_checkpoint(third: torch.Tensor) -> dict[str, torch.Tensor]:
    return published_state_dict(load_case(0).weights) | {"f.3.weight": third}


@pytest.mark.parametrize(
    ("third", "message"),
    [(torch.ones(12), r"\[12\]"), (torch.ones(17, 1), r"\[17, 1\]"), (torch.ones(17), "zero")],
    ids=["length", "dimensions", "first entry"],
)
def test_a_checkpoint_of_another_layout_is_a_clear_error(third, message):
    with pytest.raises(TallyboxError, match=rf"f\.3\.weight .*{message}"):
        compat.Counter(10).load_state_dict(bad_checkpoint(third))
    with pytest.raises(TallyboxError, match=rf"f\.3\.weight .*{message}"):
        Counter.from_published(bad_checkpoint(third), 10)


def test_a_missing_activation_is_named():
    checkpoint = published_state_dict(load_case(0).weights)
    del checkpoint["f.3.weight"]
    with pytest.raises(RuntimeError, match=r"f\.3\.weight"):
        compat.Counter(10).load_state_dict(checkpoint)
    with pytest.raises(TallyboxError, match=r"f\.3\.weight"):
        Counter.from_published(checkpoint, 10)


def test_no_parameter_is_left_without_a_gradient():
    counter = compat.Counter(3)
    counter(random_boxes(2, 4, seed=0).float().mT, torch.randn(2, 4)).sum().backward()
    assert {name for name, _ in counter.named_parameters()} == {f"f.{k}.weight" for k in range(8)}
    assert all(parameter.grad is not None for parameter in counter.parameters())


def test_the_fixed_zero_stays_zero_in_training():
    counter = compat.Counter(3)
    optimizer = torch.optim.Adam(counter.parameters(), lr=0.1)
    counter(random_boxes(2, 4, seed=1).float().mT, torch.randn(2, 4)).pow(2).sum().backward()
    optimizer.step()
    assert all(activation.weight[0] == 0 for activation in counter.f)


def test_a_box_without_area_is_distant_from_itself_as_published():
    point = torch.zeros(1, 4, 2)
    features = compat.Counter(2, already_sigmoided=True)(point, torch.ones(1, 2))
    fixed = Counter(2).count(torch.ones(1, 2), point.mT)
    # Two copies at distance 1 from each other and from themselves: |E| = 4 · 1/4 + 2 · 1/2.
    torch.testing.assert_close(features, torch.tensor([[0, 2 - 2**0.5, 2**0.5 - 1]]), rtol=0, atol=1e-6)
    assert fixed.item() == pytest.approx(1)


def test_padding_with_logits_of_minus_infinity_has_weight_zero_as_published():
    boxes = random_boxes(1, 4, seed=2).float()
    padded = torch.tensor([[2.0, 1.0, -torch.inf, -torch.inf]])
    got = compat.Counter(4)(boxes.mT, padded)
    expected = compat.Counter(4, already_sigmoided=True)(boxes.mT, padded.sigmoid())
    torch.testing.assert_close(got, expected)


def test_logits_are_the_default_as_published():
    boxes, logits = random_boxes(2, 5, seed=3).float().mT, torch.randn(2, 5)
    expected = compat.Counter(3, already_sigmoided=True)(boxes, logits.sigmoid())
    torch.testing.assert_close(compat.Counter(3)(boxes, logits), expected)


@pytest.mark.parametrize(
    ("boxes", "attention", "message"),
    [((2, 5, 4), (2, 5), "shapes"), ((2, 4, 2), (2, 2), "objects=3"), ((3, 4, 5), (2, 5), "leading")],
    ids=["not transposed", "too few", "batches differ"],
)
def test_wrong_shapes_are_clear_errors(boxes, attention, message):
    with pytest.raises(TallyboxError, match=message):
        compat.Counter(3)(torch.ones(boxes), torch.ones(attention))


def random_compat_counter(objects: int) -> compat.Counter:
    counter = compat.Counter(objects, already_sigmoided=True).double()
    weight = random_weight(USED, 16, seed=3)
    counter.load_state_dict({f"f.{k}.weight": weight[k] for k in range(USED)})
    return counter


def test_the_published_toy_baseline_runs():
    """`Baseline.forward` of the published toy/model.py calls `to_one_hot` of a sum."""
    scores = torch.tensor([[1.0, 0.75, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    expected = torch.tensor([[0, 0, 0.25, 0.75], [1, 0, 0, 0], [0, 0, 0, 1]])
    torch.testing.assert_close(compat.Counter(3).to_one_hot(scores.sum(dim=1, keepdim=True)), expected)


def test_the_published_helpers_give_the_modules_own_features():
    """The published forward pass, step by step, with `f`, `iou`, `deduplicate` and `to_one_hot`."""
    counter, problem = random_compat_counter(6), random_problem(4, proposals=6, seed=5)
    a, boxes, f = problem.attention, problem.boxes.mT, counter.f
    relevancy, distance = a.unsqueeze(-1) * a.unsqueeze(-2), 1 - counter.iou(boxes, boxes)
    per_entry, per_row = counter.deduplicate(f[3](relevancy) * f[4](distance), a)
    edges = (f[0](relevancy) * f[1](distance) / per_entry).sum((1, 2)) + (f[0](a * a) / per_row).sum(1)
    sure = (f[5](a) - 0.5).abs().mean(1) + (f[6](distance) - 0.5).abs().mean((1, 2))
    expected = counter.to_one_hot(edges.sqrt().unsqueeze(-1)) * f[7](sure).unsqueeze(-1)
    torch.testing.assert_close(counter(boxes, a), expected)


@pytest.mark.parametrize("smallest", [0.0, 1e-3], ids=["a box without area", "boxes of a usual size"])
def test_fused_or_not_the_numbers_are_the_references(smallest):
    counter = random_compat_counter(6)
    problem = random_problem(4, proposals=9, seed=2)
    boxes = problem.boxes.clone()
    boxes[0, :6, 2:] = boxes[0, :6, :2] + smallest**0.5
    results = []
    for dtype in (torch.float64, torch.float32):  # float64 takes the reference
        counter.zero_grad()
        given = [value.to(dtype).clone().requires_grad_() for value in (boxes.mT, problem.attention)]
        features = counter.to(dtype)(*given)
        features.backward(cotangent(features))
        gradients = [value.grad for value in given] + [parameter.grad for parameter in counter.parameters()]
        results.append([value.detach().double() for value in (features, *gradients)])
    torch.testing.assert_close(*reversed(results), rtol=1e-3, atol=1e-4)
