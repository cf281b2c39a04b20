from __future__ import annotations

import pytest
import torch

import tallybox
from tallybox import shapes
from tallybox.counter.functional import count_features
from tallybox.errors import InputError, InputTypeError
from tallybox.shapes import by_shape


@pytest.fixture
def asked():
    """A function that remembers by shape, and the list of what it was really asked."""
    calls = []

    @by_shape
    def boxes_number(boxes, most):
        calls.append((boxes.shape, most))
        if boxes.shape[-1] != 4:
            raise ValueError("no boxes")
        return min(boxes.shape[-2], most)

    return boxes_number, calls


def test_the_same_shapes_are_asked_about_once(asked):
    number, calls = asked
    assert [number(torch.zeros(2, 3, 4), 10), number(torch.ones(2, 3, 4), 10)] == [3, 3]
    assert len(calls) == 1


@pytest.mark.parametrize(
    "other",
    [
        (torch.zeros(2, 5, 4), 10),
        (torch.zeros(2, 3, 4, dtype=torch.float64), 10),
        (torch.zeros(2, 3, 4, device="meta"), 10),
        (torch.zeros(2, 3, 4), 2),
    ],
    ids=["shape", "dtype", "device", "number"],
)
def test_anything_else_is_asked_about_again(asked, other):
    number, calls = asked
    number(torch.zeros(2, 3, 4), 10)
    number(*other)
    assert len(calls) == 2


def test_an_error_is_raised_every_time(asked):
    number, _ = asked
    for _ in range(2):
        with pytest.raises(ValueError, match="no boxes"):
            number(torch.zeros(2, 3), 10)


def test_no_more_is_remembered_than_has_room(asked, monkeypatch):
    number, calls = asked
    monkeypatch.setattr(shapes, "MOST_REMEMBERED", 3)
    for boxes in (1, 2, 3, 4, 1):
        number(torch.zeros(boxes, 4), 10)
    assert len(calls) == 5


def test_what_equals_a_number_is_still_not_one():
    given = (torch.ones(1), torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(8, 16))
    count_features(*given, max_objects=1)
    for wrong in (True, 1.0):
        with pytest.raises(InputTypeError, match="max_objects must be a whole number"):
            count_features(*given, max_objects=wrong)
    with pytest.raises(InputError, match="at least 1"):
        count_features(*given, max_objects=0)


def test_a_public_name_is_looked_up_once():
    assert tallybox.count_features is count_features
    assert vars(tallybox)["count_features"] is count_features
