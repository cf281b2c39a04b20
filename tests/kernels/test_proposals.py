import pytest
import torch

from tallybox.kernels.proposals import prepare_proposals
from tests.support.problems import random_boxes


def prepare(attention, mask=None, *, max_objects=2, logits=False, boxes=None):
    attention = torch.as_tensor(attention)
    boxes = random_boxes(*attention.shape, seed=0).to(attention.dtype) if boxes is None else boxes
    return prepare_proposals(
        attention, boxes, None if mask is None else torch.tensor(mask), max_objects=max_objects, logits=logits
    )


def test_the_largest_weights_are_kept_with_their_boxes():
    boxes = random_boxes(4, seed=1).float()
    kept = prepare([0.2, 0.9, 0.1, 0.5], boxes=boxes)
    torch.testing.assert_close(kept.attention, torch.tensor([0.9, 0.5]))
    assert kept.indices.tolist() == [1, 3]
    assert torch.equal(kept.boxes, boxes[[1, 3]])


def test_among_equal_weights_the_first_are_kept():
    assert prepare([0.3, 0.5, 0.5, 0.5]).indices.tolist() == [1, 2]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_nothing_is_moved_when_all_can_be_kept(number):
    kept = prepare(torch.linspace(0, 1, number))
    assert kept.indices is None
    assert torch.equal(kept.attention, torch.linspace(0, 1, number))


def test_selection_is_before_the_logistic_which_would_make_large_scores_equal():
    kept = prepare([40.0, 60.0, 50.0], logits=True)
    assert kept.attention.tolist() == [1.0, 1.0]
    assert kept.indices.tolist() == [1, 2]


def test_logits_become_weights():
    torch.testing.assert_close(prepare([0.0, 2.0], logits=True).attention, torch.tensor([0.5, 0.880797]))


def test_a_masked_proposal_is_kept_only_when_real_ones_run_out():
    kept = prepare([0.9, 0.8, 0.1], [False, True, False])
    assert kept.indices.tolist() == [1, 0]
    assert kept.mask.tolist() == [True, False]
    torch.testing.assert_close(kept.attention, torch.tensor([0.8, 0.0]))


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("number", [2, 5])
def test_what_stands_in_a_masked_place_is_replaced_by_zero(number, logits):
    attention = torch.tensor([0.5, torch.nan, torch.inf, -torch.inf, torch.nan][:number])
    boxes = random_boxes(number, seed=2).float()
    boxes[1:] = torch.nan
    kept = prepare(attention, [True, False, False, False, False][:number], logits=logits, boxes=boxes)
    assert kept.attention[1].item() == 0
    assert kept.boxes[1].tolist() == [0, 0, 0, 0]
    assert kept.boxes[0].isfinite().all()


@pytest.mark.parametrize(
    ("given", "computed"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_double_stays_double_and_everything_else_is_computed_in_single(given, computed):
    kept = prepare(torch.tensor([0.25, 0.5], dtype=given))
    assert kept.attention.dtype == kept.boxes.dtype == computed


def test_attention_decides_the_dtype_of_the_boxes():
    kept = prepare(torch.tensor([0.25, 0.5]), boxes=random_boxes(2, seed=3))
    assert kept.boxes.dtype == torch.float32


def test_each_image_keeps_its_own_proposals():
    kept = prepare([[0.1, 0.2, 0.3], [0.6, 0.4, 0.5]])
    assert kept.indices.tolist() == [[2, 1], [0, 2]]


def test_selection_follows_leading_dimensions_that_broadcast():
    boxes = random_boxes(3, seed=4).float()
    kept = prepare([0.1, 0.2, 0.3], [[True, True, False], [True, True, True]], boxes=boxes)
    assert kept.indices.tolist() == [[1, 0], [2, 1]]
    assert torch.equal(kept.boxes[1], boxes[[2, 1]])


def test_gradients_reach_the_kept_proposals_only():
    attention = torch.tensor([0.2, 0.9, 0.1, 0.5], requires_grad=True)
    boxes = random_boxes(4, seed=5).float().requires_grad_()
    kept = prepare(attention, boxes=boxes)
    (kept.attention.sum() + kept.boxes.sum()).backward()
    assert attention.grad.tolist() == [0, 1, 0, 1]
    assert boxes.grad.sum(-1).tolist() == [0, 4, 0, 4]
