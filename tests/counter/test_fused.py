"""The fused backends against the float64 reference, where kernels go wrong: ties, zeros, knots, odd sizes.

Inputs are multiples of powers of two, so that values that lie on a knot do so in every precision.
"""

import math

import pytest
import torch
from torch import Tensor

from tallybox.counter.functional import count_features, count_results
from tallybox.kernels.proposals import checked_proposals
from tests.support.backends import FUSED, device_of
from tests.support.problems import assert_same_in_scale, grid, square_boxes
from tests.support.tolerances import tolerance


def smooth_weight(seed: int, segments: int = 16) -> Tensor:
    return torch.rand(8, segments, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.05


def flat_ended_weight(seed: int) -> Tensor:
    """Activations that are 0 on their first segments, so that products have factors of exactly 0."""
    weight = smooth_weight(seed)
    weight[:, :6] = 0
    return weight


def draw(images: int, number: int, seed: int, **chosen: Tensor | None) -> tuple[Tensor, ...]:
    """Draw attention, boxes and weight, without a mask, unless they are chosen."""
    drawn = {
        "attention": grid(images, number, seed=seed),
        "boxes": square_boxes(images, number, seed=seed),
        "weight": smooth_weight(seed),
        "mask": None,
    }
    return tuple((drawn | chosen).values())


def draw_masked(images: int, number: int, seed: int, weight: Tensor | None = None, *, last: bool = True):
    """Draw images that keep different numbers of their boxes, the last one all."""
    kept = grid(images, number, seed=seed + 1, parts=1).bool()
    kept[-1] |= last
    return draw(images, number, seed, weight=smooth_weight(seed) if weight is None else weight, mask=kept)


EQUAL = torch.full((2, 5), 0.75, dtype=torch.float64)
ONE_PLACE = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)

CASES = {
    "one box": lambda: draw(1, 1, 1, attention=EQUAL[:1, :1]),
    "equal weights": lambda: draw(2, 5, 2, attention=EQUAL),
    "weights on knots, boxes that touch": lambda: draw(3, 6, 3),
    "zero and full weights": lambda: draw(3, 6, 4, attention=grid(3, 6, seed=4, parts=1)),
    "identical boxes": lambda: draw(2, 5, 5, boxes=ONE_PLACE.expand(2, 5, 4)),
    "boxes without area": lambda: draw(2, 4, 6, boxes=grid(2, 4, 2, seed=6, parts=2).repeat(1, 1, 2)),
    "factors of zero": lambda: draw(3, 6, 7, weight=flat_ended_weight(7)),
    "untrained, clear": lambda: draw(
        3, 6, 8, attention=grid(3, 6, seed=8, parts=1), weight=torch.ones(8, 16, dtype=torch.float64)
    ),
    "a mask": lambda: draw_masked(3, 6, 9, last=False),
    "a mask with nothing left": lambda: draw(2, 4, 11, mask=torch.zeros(2, 4, dtype=torch.bool)),
    "more boxes than a lane": lambda: draw_masked(2, 19, 12, last=False),
    "fewer segments than a register": lambda: draw_masked(8, 6, 14, smooth_weight(14, 5)),
    "segments for two registers less one": lambda: draw_masked(8, 6, 15, smooth_weight(15, 15)),
    "more segments than two registers": lambda: draw_masked(8, 6, 16, smooth_weight(16, 23)),
    "few images of many boxes": lambda: draw_masked(2, 29, 17),
    "more boxes than in lanes": lambda: draw_masked(6, 67, 18),
    **{f"{images} images": lambda n=images: draw_masked(n, 6, n) for images in (7, 8, 9, 17)},
}


def results(backend: str, dtype: torch.dtype, case: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Compute count, features and the gradient of a fixed mixture of both with respect to each input."""
    device = device_of(backend)
    attention, boxes, weight, mask = case
    inputs = [t.to(device, dtype, copy=True).requires_grad_() for t in (attention, boxes.contiguous(), weight)]
    mask = None if mask is None else mask.to(device)
    proposals = checked_proposals(*inputs[:2], mask, max_objects=32, logits=False)
    count = count_results(proposals, inputs[2], 32, backend).counts
    features = count_features(*inputs, max_objects=32, mask=mask, backend=backend)
    mixture = torch.linspace(-1, 1, 33, dtype=dtype, device=device)
    gradients = torch.autograd.grad((features * mixture).sum() + 0.1 * count.sum(), inputs)
    named = zip(("grad_attention", "grad_boxes", "grad_weight"), gradients, strict=True)
    found = {"count": count.detach(), "features": features.detach(), **dict(named)}
    return {name: value.cpu().double() for name, value in found.items()}


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize(("fused", "dtype"), [*((name, torch.float32) for name in FUSED), ("cpu", torch.float64)])
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_every_gradient_are_the_references(fused, dtype, case):
    drawn = CASES[case]()
    expected = results("reference", torch.float64, drawn)
    assert_same_in_scale(results(fused, dtype, drawn), expected, tolerance(fused, dtype))


in_lanes_or_blocks = pytest.mark.parametrize(
    "min_images", [0.0, math.inf], ids=["a lane for each image", "a block for each image"]
)


def change_the_launches(monkeypatch, **constants: float) -> None:
    """Set constants that kernels are chosen by, for one test."""
    launch = pytest.importorskip("tallybox.counter.cuda.launch")
    for name, value in constants.items():
        monkeypatch.setattr(launch, name, value)


@pytest.mark.usefixtures("poisoned_memory")
@in_lanes_or_blocks
@pytest.mark.parametrize("fused", ["triton"])
@pytest.mark.parametrize("case", ["one box", "factors of zero", "a mask with nothing left", "17 images", "a mask"])
def test_both_families_of_kernels_in_triton_are_right_for_few_boxes(monkeypatch, fused, min_images, case):
    change_the_launches(monkeypatch, MIN_IMAGES_FOR_LANES=min_images)
    drawn = CASES[case]()
    expected = results("reference", torch.float64, drawn)
    assert_same_in_scale(results(fused, torch.float32, drawn), expected, tolerance(fused, torch.float32))


@pytest.mark.slow
@in_lanes_or_blocks
@pytest.mark.parametrize("fused", ["triton"])
def test_blocks_of_several_images_keep_counters_apart(monkeypatch, fused, min_images):
    # Of 15 images three come to a block; the last of a counter has two.
    change_the_launches(monkeypatch, MIN_IMAGES_FOR_LANES=min_images, BLOCKS_WANTED=5)
    assert_counters_stay_apart(fused, images=5)


@pytest.mark.parametrize(
    ("fused", "images"),
    [("cpu", 1), ("cpu", 5), ("cpu", 9), ("triton", 1), pytest.param("triton", 5, marks=pytest.mark.slow)],
)
def test_counters_of_any_number_of_images_stay_apart(fused, images):
    assert_counters_stay_apart(fused, images)


def assert_counters_stay_apart(fused: str, images: int) -> None:
    """Give three counters so many images each, and compare all that comes of it."""
    weight = torch.stack([smooth_weight(seed) for seed in range(3)])[:, None]
    attention, boxes, _, mask = draw_masked(3 * images, 6, 19, weight)
    drawn = (attention.view(3, images, 6), boxes.view(3, images, 6, 4), weight, mask.view(3, images, 6))
    together, expected = results(fused, torch.float32, drawn), results("reference", torch.float64, drawn)
    assert_same_in_scale(together, expected, tolerance(fused, torch.float32))


def test_an_image_gives_the_same_bits_whatever_images_share_its_vectors():
    attention, boxes, weight, mask = draw_masked(11, 6, 20)
    together = results("cpu", torch.float32, (attention, boxes, weight, mask))
    for image in range(11):
        own = slice(image, image + 1)
        alone = results("cpu", torch.float32, (attention[own], boxes[own], weight, mask[own]))
        for name in ("count", "features", "grad_attention", "grad_boxes"):
            assert torch.equal(alone[name][0], together[name][image]), (image, name)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("fused", FUSED)
def test_a_graph_that_is_kept_goes_back_twice_alike(fused):
    device = device_of(fused)
    attention, boxes, weight, _ = CASES["17 images"]()
    inputs = [t.to(device, torch.float32).requires_grad_() for t in (attention, boxes, weight)]
    features = count_features(*inputs, max_objects=32, backend=fused)
    once, again = (torch.autograd.grad(features[:, 1].sum(), inputs, retain_graph=True) for _ in range(2))
    assert all(torch.equal(first, second) for first, second in zip(once, again, strict=True))
    assert any(gradient.abs().sum() > 0 for gradient in once)
