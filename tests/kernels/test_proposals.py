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


def test_among_equal_weights_the_first_are_kept():
    assert prepare([0.3, 0.5, 0.5, 0.5]).indices.tolist() == [1, 2]


def test_selection_is_before_the_logistic_which_would_make_large_scores_equal():
    kept = prepare([40.0, 60.0, 50.0], logits=True)
    assert kept.attention.tolist() == [1.0, 1.0]
    assert kept.indices.tolist() == [1, 2]


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
