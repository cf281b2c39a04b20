"""A photo on a square: at the top left, the rest grey. Boxes there, and where they lie in the photo."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from tallybox.photos.images import Photo

GREY = 114  # what the detections were made with that the estimator learned from


def fitted_size(size_wh: tuple[int, int], side: int) -> tuple[int, int]:
    """Return the width and height a photo has on a square, at least one pixel each.

    >>> fitted_size((640, 480), 416), fitted_size((10_000, 3), 416)
    ((416, 312), (416, 1))
    """
    scale = side / max(size_wh)
    return max(1, round(size_wh[0] * scale)), max(1, round(size_wh[1] * scale))


def letterbox(photos: Sequence[Photo], side: int) -> Tensor:
    """Put photos on squares: ``[B, 3, side, side]`` bytes, channels last in memory.

    Between the four nearest pixels, without smoothing first: as Darknet, whose models have never seen otherwise.
    """
    squares = torch.full((len(photos), side, side, 3), GREY, dtype=torch.uint8)
    for square, photo in zip(squares, photos, strict=True):
        width, height = fitted_size(photo.size_wh, side)
        pixels = torch.from_numpy(np.array(photo.image)).permute(2, 0, 1).unsqueeze(0)  # [1, 3, H, W]
        fitted = nn.functional.interpolate(pixels, (height, width), mode="bilinear", align_corners=False)
        square[:height, :width] = fitted[0].permute(1, 2, 0)
    return squares.permute(0, 3, 1, 2)


def boxes_in_photo(boxes_cxcywh: Tensor, size_wh: tuple[int, int], side: int) -> Tensor:
    """Turn centres and sizes on a square ``[N, 4]`` into corners within the photo, in its pixels.

    >>> boxes_in_photo(torch.tensor([[208.0, 156.0, 416.0, 400.0]]), (640, 480), 416).tolist()
    [[0.0, 0.0, 640.0, 480.0]]
    """
    fitted = fitted_size(size_wh, side)
    size = torch.tensor(size_wh, dtype=boxes_cxcywh.dtype, device=boxes_cxcywh.device)
    scale = size / torch.tensor(fitted, dtype=size.dtype, device=size.device)
    centre, half = boxes_cxcywh[:, :2], boxes_cxcywh[:, 2:] / 2
    first = ((centre - half) * scale).clamp(min=0).minimum(size)
    last = ((centre + half) * scale).clamp(min=0).minimum(size)
    return torch.cat((first, last), 1)
