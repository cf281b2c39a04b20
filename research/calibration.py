"""Calibration of answers: the temperature that makes probabilities match accuracies, and the error that is left.

Legend: Q questions, K answers.
"""

import math

import torch
from torch import Tensor

from tallybox.errors import InputError

BINS = 10
AGREEING = 3  # people who must have given a right answer
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.1, 10.0
STEPS = 60


def fit_temperature(logits: Tensor, answers: Tensor) -> float:
    """Return the number to divide ``logits [Q, K]`` by, so that the mean probability is the share of right answers.

    ``answers [Q, 10]`` are those of ten people, -1 for one outside the K. The questions must not be in the model's
    training split. For a model that gives 98 % to its answers and is right in three of four:

    >>> logits = torch.tensor([[4.0, 0.0]]).repeat(4, 1)
    >>> round(fit_temperature(logits, torch.tensor([[0], [0], [0], [1]]).expand(-1, 10)), 2)
    3.64
    """
    if len(logits) == 0:
        raise InputError("logits must be of at least one question, but got none")
    logits = logits.double()
    share = is_right(logits, answers).double().mean()
    low, high = MIN_TEMPERATURE, MAX_TEMPERATURE
    for _ in range(STEPS):  # bisection: the higher the temperature, the lower the probabilities of the best answers
        middle = math.sqrt(low * high)
        is_too_sure = (logits / middle).softmax(-1).amax(-1).mean() > share
        low, high = (middle, high) if is_too_sure else (low, middle)
    return math.sqrt(low * high)


def is_right(logits: Tensor, answers: Tensor) -> Tensor:
    """Return whether three of the ten people gave the most probable answer of ``logits [Q, K]``, ``[Q]``."""
    return (answers == logits.argmax(-1, keepdim=True)).sum(1) >= AGREEING


def calibration_error(probabilities: Tensor, right: Tensor) -> float:
    """Return the expected calibration error of the most probable answers.

    ``probabilities [Q]`` of the given answers, ``right [Q]`` whether they are right. In each of ten bins of equal width
    the mean probability is compared with the share of right answers; bins are weighted by their number of questions.

    >>> calibration_error(torch.tensor([0.75, 0.75, 0.5, 0.5]), torch.tensor([True, False, True, False]))
    0.125
    """
    bins = (probabilities.double() * BINS).long().clamp(max=BINS - 1)
    differences = probabilities.double() - right.double()
    sums = torch.zeros(BINS, dtype=torch.float64).index_add(0, bins, differences)
    return float(sums.abs().sum()) / len(bins)
