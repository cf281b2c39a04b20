"""Resize photos to the pixels of Pillow's resize, and read the network's maps, for whole batches on any device.

Legend: B photos, P cells of the network's grids.
"""

import collections
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from tallybox.detections.detections import Size
from tallybox.photos.images import GREY, pillow
from tallybox.photos.network import BINS, SIDES, STRIDES, HeadMaps

# Pillow's coefficients are whole numbers of 22 bits. Two halves of 11 bits times a pixel stay exact in float32.
PRECISION, HALF = 22, 11
BICUBIC_SUPPORT = 2.0
CALLS_BEFORE_GRAPH = 2  # of a shape: a graph is captured if its batches keep coming


def letterbox_on(device: torch.device, photos: Sequence[Tensor], resized: Sequence[Size], input_wh: Size) -> Tensor:
    """Return photos ``[H, W, 3]``, resized to (width, height), at the top left of grey ones, ``[B, H, W, 3]`` uint8."""
    canvas = torch.full((len(photos), input_wh[1], input_wh[0], 3), GREY, dtype=torch.uint8, device=device)
    for target, pixels, (width, height) in zip(canvas, photos, resized, strict=True):
        target[:height, :width] = resize(pixels.to(device, non_blocking=True), (width, height))
    return canvas


def resize(pixels: Tensor, size_wh: Size) -> Tensor:
    """Return a photo ``[H, W, 3]`` uint8 at another size, as Pillow's bicubic filter does, to the last bit."""
    height, width = pixels.shape[:2]
    if (width, height) == size_wh:
        return pixels
    planes, (first, second) = pixels.permute(2, 0, 1).float(), size_wh
    # Pillow resizes across, rounds, and resizes down; since version 13 the other way round if the height shrinks more.
    goes_down_first = int(pillow().__version__.split(".")[0]) >= 13 and height - second > 2 * max(width - first, 0)
    if goes_down_first:
        planes, first, second = planes.mT, second, first
    planes = _resample(_resample(planes, first).mT, second)
    return (planes if goes_down_first else planes.mT).permute(1, 2, 0).to(torch.uint8)


def _resample(values: Tensor, length: int) -> Tensor:
    """Resample the last dimension of whole numbers ``[..., L]``."""
    if values.shape[-1] == length:
        return values
    high, low = (values @ _coefficients(values.shape[-1], length, values.device)).to(torch.int32).chunk(2, -1)
    return ((high << HALF) + low + (1 << (PRECISION - 1)) >> PRECISION).clamp(0, 255).float()


@lru_cache(maxsize=512)
def _coefficients(length: int, resized: int, device: torch.device) -> Tensor:
    """Return Pillow's coefficients ``[length, 2 * resized]``: their high bits, then their low ones."""
    scale = length / resized
    support = BICUBIC_SUPPORT * max(scale, 1)
    centre = (np.arange(resized) + 0.5) * scale
    first = np.maximum((centre - support + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + support + 0.5).astype(np.int64), length)
    pixel = np.arange(length)[:, None]
    x = np.abs((pixel - centre + 0.5) / max(scale, 1))
    near, far = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
    weights = np.where(x < 1, near, np.where(x < 2, far, 0)) * ((first <= pixel) & (pixel < end))
    whole = weights / weights.sum(0) * (1 << PRECISION)
    whole = np.trunc(whole + np.copysign(0.5, whole)).astype(np.int64)
    halves = np.concatenate((whole >> HALF, whole & ((1 << HALF) - 1)), 1)
    return torch.from_numpy(halves.astype(np.float32)).to(device)


def flattened(maps: Sequence[HeadMaps]) -> list[Tensor]:
    """Return class, quality and distance logits of all cells, each ``[B, P, channels]``."""
    return [
        torch.cat([part.permute(0, 2, 3, 1).flatten(1, 2) for part in parts], 1) for parts in zip(*maps, strict=True)
    ]


def grid(maps: Sequence[HeadMaps]) -> tuple[Tensor, Tensor]:
    """Return the centre of each cell ``[P, 2]`` in pixels of the input, and its stride ``[P, 1]``."""
    centres, strides = [], []
    for stride, (class_logits, _, _) in zip(STRIDES, maps, strict=True):
        sides = (torch.arange(side, device=class_logits.device) for side in reversed(class_logits.shape[2:]))
        cells = torch.stack(torch.meshgrid(*sides, indexing="xy"), -1).reshape(-1, 2)  # x and y of each
        centres.append((cells + 0.5) * stride)
        strides.append(torch.full_like(centres[-1][:, :1], stride))
    return torch.cat(centres), torch.cat(strides)


def boxes_of_cells(distance_logits: Tensor, centres: Tensor, strides: Tensor) -> Tensor:
    """Return boxes ``[..., 4]`` in pixels of the input, from logits ``[..., SIDES * BINS]``."""
    bins = torch.arange(BINS, device=centres.device, dtype=torch.float32)
    distance = distance_logits.unflatten(-1, (SIDES, BINS)).softmax(-1) @ bins * strides
    return torch.cat((centres - distance[..., :2], centres + distance[..., 2:]), -1)


class Graphed:
    """A function of tensors ``[B, ...]``, called on a GPU as a CUDA graph: the host launches it as a whole.

    There is a graph for each shape that comes often. Batches are padded to 1, 2, 4, 8 … photos, so that there are few.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function, self.calls = function, collections.Counter[torch.Size]()
        self.graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return what the function returns, as a copy; only one thread at a time may call it."""
        number = len(inputs[0])
        missing = (1 << (number - 1).bit_length()) - number
        if missing:
            inputs = tuple(torch.cat((tensor, tensor[-1:].repeat_interleave(missing, 0))) for tensor in inputs)
        shape = inputs[0].shape
        self.calls[shape] += 1
        if self.calls[shape] <= CALLS_BEFORE_GRAPH:
            return self.function(*inputs)[:number]
        if shape not in self.graphs:
            memory, graph = [tensor.clone() for tensor in inputs], torch.cuda.CUDAGraph()
            pool = next(iter(self.graphs.values()))[0].pool() if self.graphs else None
            # Meanwhile, other threads decode photos into memory that they pin, and count.
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                result = self.function(*memory)
            self.graphs[shape] = graph, memory, result
        graph, memory, result = self.graphs[shape]
        for tensor, given in zip(memory, inputs, strict=True):
            tensor.copy_(given)
        graph.replay()
        return result[:number].clone()
