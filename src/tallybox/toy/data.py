"""The toy task's images, drawn for many settings at once, on any device.

Legend: M settings (side length l and noise q), B images of each, N boxes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# Squares of side 0 are points, which overlap only where they are the same: below this side the ratio of
# distance to side would be 0 / 0.
MIN_SIDE = 1e-6


@dataclass(frozen=True, eq=False)
class ToyImages:
    """A batch: the inputs of a model (weights and boxes) and its target (the count)."""

    attention: Tensor  # [M, B, N] in [0, 1]
    boxes: Tensor  # [M, B, N, 4] corners
    is_true: Tensor  # [M, B, N] bool, which boxes hold an object
    count: Tensor  # [M, B] 0 ... N


def draw_images(
    side_length: Tensor, noise: Tensor, *, images: int, boxes: int, generator: torch.Generator
) -> ToyImages:
    """Draw ``images`` of each setting: ``side_length [M]`` and ``noise [M]`` in [0, 1], on their device.

    Square boxes lie anywhere in the unit square, a uniform number of them is true; a box's score is its largest
    IoU with a true one, 0 where there is none, and its weight (1 - q) * score + q * uniform noise.

    >>> half = torch.tensor([0.5])
    >>> toy = draw_images(half, half, images=2, boxes=10, generator=torch.Generator().manual_seed(0))
    >>> toy.attention.shape, toy.count.tolist()
    (torch.Size([1, 2, 10]), [[5, 10]])
    """
    side, q = side_length.view(-1, 1, 1), noise.view(-1, 1, 1)  # [M, 1, 1]
    settings, device = len(side_length), side_length.device
    x, y, z = torch.rand(3, settings, images, boxes, device=device, generator=generator)
    count = torch.randint(boxes + 1, (settings, images), device=device, generator=generator)
    # Positions are independent and equally distributed, so that the first boxes are a random choice of true ones.
    is_true = torch.arange(boxes, device=device) < count.unsqueeze(-1)
    x1, y1 = x * (1 - side), y * (1 - side)
    score = largest_overlap(x1, y1, side, is_true)
    corners = torch.stack((x1, y1, x1 + side, y1 + side), dim=-1)
    return ToyImages((1 - q) * score + q * z, corners, is_true, count)


def largest_overlap(x1: Tensor, y1: Tensor, side: Tensor, is_true: Tensor) -> Tensor:
    """Return each square's largest IoU with a true one: ``[M, B, N]``, 0 where there is none.

    `box_iou` gives the same, but takes 3.9 ms for a batch of one setting, where this takes 0.7 (one AMD EPYC core).
    Squares of one side l shifted by (dx, dy) share (l - |dx|)(l - |dy|), so their IoU is i / (2 - i) with
    i = (1 - |dx| / l)(1 - |dy| / l).
    """
    side = side.clamp(min=MIN_SIDE).unsqueeze(-1)
    common_x, common_y = (
        (corner.unsqueeze(-1) - corner.unsqueeze(-2)).abs_().div_(side).neg_().add_(1).clamp_(min=0)  # [M, B, N, N]
        for corner in (x1, y1)
    )
    # The IoU grows with the shared area, so that the largest of these gives the largest IoU.
    largest = common_x.mul_(common_y).mul_(is_true.unsqueeze(-2)).amax(-1)
    return largest / (2 - largest)
