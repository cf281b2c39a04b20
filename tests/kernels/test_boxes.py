"""Boxes inside Numba kernels against those of PyTorch, as numbers and as vectors of eight."""

import numpy as np
import pytest
import torch

from tallybox.boxes import box_iou
from tests.support.problems import square_boxes

pytest.importorskip("numba")

from tallybox.kernels.cpu import boxes as kernel_boxes
from tallybox.kernels.cpu.compiling import compiled
from tallybox.kernels.cpu.vectors import LANES, load, store


@compiled
def overlap_numbers(boxes, iou, grad_boxes):
    """Fill ``iou [N, N]`` below the diagonal, and the gradient of its sum."""
    zero, half, one = boxes.dtype.type(0), boxes.dtype.type(0.5), boxes.dtype.type(1)
    for i in range(boxes.shape[0]):
        for j in range(i):
            a = (boxes[i, 0], boxes[i, 1], boxes[i, 2], boxes[i, 3])
            b = (boxes[j, 0], boxes[j, 1], boxes[j, 2], boxes[j, 3])
            iou[i, j] = kernel_boxes.box_iou(a, b, zero, one)
            grad_a, grad_b = kernel_boxes.box_iou_backward(a, b, one, zero, half)
            for corner in range(4):
                grad_boxes[i, corner] += grad_a[corner]
                grad_boxes[j, corner] += grad_b[corner]


@compiled
def overlap_vectors(a, b, iou, grad_a):
    """Fill ``iou [8]`` of boxes ``[4, 8]``, and the gradient of the first ones' corners."""
    zero, half, one = a.dtype.type(0), a.dtype.type(0.5), a.dtype.type(1)
    first = (load(a, (0, 0)), load(a, (1, 0)), load(a, (2, 0)), load(a, (3, 0)))
    second = (load(b, (0, 0)), load(b, (1, 0)), load(b, (2, 0)), load(b, (3, 0)))
    overlaps = kernel_boxes.box_iou(first, second, zero, one)
    store(iou, (0,), overlaps)
    of_first, _ = kernel_boxes.box_iou_backward(first, second, overlaps * zero + one, zero, half)
    for corner in range(4):
        store(grad_a, (corner, 0), of_first[corner])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_overlap_as_in_pytorch_touching_equal_and_without_area(dtype):
    boxes = torch.cat((square_boxes(6, seed=3), torch.tensor([[0.5, 0.5, 0.5, 0.5]] * 2).double())).to(dtype)
    boxes.requires_grad_()
    expected = box_iou(boxes, boxes).tril(-1)
    (gradient,) = torch.autograd.grad(expected.sum(), boxes)
    given = boxes.detach().numpy()
    iou, grad_boxes = np.zeros((8, 8), given.dtype), np.zeros_like(given)
    overlap_numbers(given, iou, grad_boxes)
    torch.testing.assert_close(torch.from_numpy(iou), expected.detach())
    torch.testing.assert_close(torch.from_numpy(grad_boxes), gradient)


def test_vectors_overlap_as_numbers_do():
    boxes = square_boxes(2, LANES, seed=4).float().requires_grad_()
    expected = box_iou(*boxes).diagonal()
    (gradient,) = torch.autograd.grad(expected.sum(), boxes)
    a, b = (np.ascontiguousarray(given.T.detach().numpy()) for given in boxes)
    iou, grad_a = np.empty(LANES, np.float32), np.empty((4, LANES), np.float32)
    overlap_vectors(a, b, iou, grad_a)
    torch.testing.assert_close(torch.from_numpy(iou), expected.detach())
    torch.testing.assert_close(torch.from_numpy(grad_a.T.copy()), gradient[0])


@pytest.mark.parametrize("corner", range(4))
def test_a_corner_that_is_nan_makes_the_overlap_nan(corner):
    boxes = np.array([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    boxes[1, corner] = np.nan
    iou = np.zeros((2, 2))
    overlap_numbers(boxes, iou, np.zeros((2, 4)))
    assert np.isnan(iou[1, 0])
