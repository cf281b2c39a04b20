from __future__ import annotations

import pytest
import torch

from tallybox import Counter, count_features
from tallybox.counter.dispatch import check_backend
from tallybox.errors import BackendError, InputError
from tests.support.problems import random_boxes


def test_an_unknown_backend_is_an_error_that_lists_the_known_ones():
    with pytest.raises(InputError, match=r'backend must be one of "auto", "reference".*but got \'gpu\''):
        check_backend("gpu")


def test_the_layer_refuses_an_unknown_backend_when_it_is_built():
    with pytest.raises(InputError, match="backend must be one of"):
        Counter(backend="gpu")


def test_a_backend_that_is_named_but_cannot_run_is_an_error_and_not_replaced():
    if torch.cuda.is_available():
        pytest.skip("the triton backend can run here")
    attention, boxes = torch.rand(3), random_boxes(3, seed=0).float()
    with pytest.raises(BackendError, match="triton"):
        count_features(attention, boxes, torch.ones(8, 16), backend="triton")


def test_auto_gives_what_the_reference_gives():
    attention, boxes = torch.rand(2, 5), random_boxes(2, 5, seed=1).float()
    weight = torch.ones(8, 16)
    torch.testing.assert_close(
        count_features(attention, boxes, weight, backend="auto"),
        count_features(attention, boxes, weight, backend="reference"),
    )
