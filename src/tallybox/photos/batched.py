"""Resize photos, read the network's maps and apply NMS for whole batches, on any device.

The host never waits for a GPU in between: all shapes are fixed, and every photo gives one tensor of 200 rows. The
numbers are those of Pillow's resize and of the NMS for numpy arrays, which serve photos on a CPU.

Legend: B photos, P cells of the network's grids, C categories, N candidates (a cell with a category), D detections.
"""

import collections
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor

from tallybox.boxes import batched_overlap_by_more, suppress_in_steps
from tallybox.photos.images import GREY
from tallybox.photos.network import BINS, SIDES, STRIDES, HeadMaps

# Pillow's coefficients are whole numbers of 22 bits. Two halves of 11 bits times a pixel stay exact in float32.
PRECISION, HALF = 22, 11
BICUBIC_SUPPORT = 2.0
CELLS, OF_CATEGORY = 4096, 512  # of a photo, and of a category in it, whose candidates are looked at
CANDIDATES = 2048  # of a photo that go through NMS; the few photos that need more are left to the host
CALLS_BEFORE_GRAPH = 2  # of a shape: a graph is captured if its batches keep coming
STEPS = 16  # of NMS: boxes that each depend on the one before, at most


def letterbox_on(
    device: torch.device, photos: Sequence[Tensor], resized: Sequence[tuple[int, int]], input_wh: tuple[int, int]
) -> Tensor:
    """Return photos ``[H, W, 3]``, resized to (width, height), at the top left of grey ones, ``[B, H, W, 3]`` uint8."""
    canvas = torch.full((len(photos), input_wh[1], input_wh[0], 3), GREY, dtype=torch.uint8, device=device)
    for target, pixels, (width, height) in zip(canvas, photos, resized, strict=True):
        target[:height, :width] = resize(pixels.to(device, non_blocking=True), (width, height))
    return canvas


def resize(pixels: Tensor, size_wh: tuple[int, int]) -> Tensor:
    """Return a photo ``[H, W, 3]`` uint8 at another size, as Pillow's bicubic filter does, to the last bit."""
    height, width = pixels.shape[:2]
    if (width, height) == size_wh:
        return pixels
    planes, (first, second) = pixels.permute(2, 0, 1).float(), size_wh
    # Pillow resizes across, rounds, and resizes down; since version 13 the other way round if the height shrinks more.
    goes_down_first = _pillow_version() >= 13 and height - second > 2 * max(width - first, 0)
    if goes_down_first:
        planes, first, second = planes.mT, second, first
    planes = _resample(_resample(planes, first).mT, second)
    return (planes if goes_down_first else planes.mT).permute(1, 2, 0).to(torch.uint8)


@cache
def _pillow_version() -> int:
    return int(version("pillow").split(".")[0])


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


def best_detections(
    maps: Sequence[HeadMaps],
    sizes: Tensor,
    *,
    min_score: float,
    nms_iou: float,
    per_category: int,
    detections: int,
    candidates: int = CANDIDATES,
    steps: int = STEPS,
) -> Tensor:
    """Return the best boxes of each photo: ``[B, D, 6]`` of x1, y1, x2, y2 in its pixels, score and category.

    ``sizes [B, 4]`` are the width and height of each photo, and those in the network's input. Rows that are left over
    have the score 0. A photo that needs more ``candidates`` or ``steps`` is NaN.
    """
    class_logits, quality_logits, distance_logits = flattened(maps)
    centres, strides = grid(maps)
    in_photo = (centres < sizes[:, None, 2:]).all(-1)  # [B, P]
    best = (class_logits.amax(-1).sigmoid() * quality_logits[..., 0].sigmoid()).sqrt() * in_photo
    # The order of cells, which sorted indices keep, decides between equal scores.
    cells = best.topk(min(CELLS, best.shape[1]), sorted=False).indices.sort().values  # [B, N]
    classes, quality, distance = (_rows_at(logits, cells) for logits in (class_logits, quality_logits, distance_logits))
    scores = (classes.sigmoid() * quality.sigmoid()).sqrt() * in_photo.gather(1, cells).unsqueeze(-1)
    scores = torch.where(scores > min_score, scores, 0)
    number, each = scores.shape[-1], min(OF_CATEGORY, scores.shape[1])
    last = scores.mT.topk(each).values[..., -1]  # [B, C]: no worse candidate of the category goes on
    flat = torch.where(scores >= last.unsqueeze(1), scores, 0).flatten(1)
    chosen = flat.topk(min(candidates, flat.shape[1]), sorted=False).indices.sort().values
    score, order = flat.gather(1, chosen).sort(dim=1, descending=True, stable=True)
    chosen = chosen.gather(1, order)
    categories, row = chosen % number, chosen // number
    size = sizes[:, None, :2].repeat(1, 1, 2)
    boxes = boxes_of_cells(distance, centres[cells], strides[cells]) * (size / sizes[:, None, 2:].repeat(1, 1, 2))
    boxes = _rows_at(boxes.clamp(min=0).minimum(size), row)

    overlaps = batched_overlap_by_more(boxes, nms_iou)
    overlaps &= categories.unsqueeze(-1) == categories.unsqueeze(-2)
    kept, is_settled = suppress_in_steps(overlaps, score > 0, steps)
    of_category = categories.unsqueeze(-1) == torch.arange(number, device=boxes.device)
    place = (of_category & kept.unsqueeze(-1)).cumsum(1)  # [B, N, C]
    is_full = place[:, -1] >= per_category
    kept &= place.gather(2, categories.unsqueeze(-1)).squeeze(-1) <= per_category
    first = (~kept).to(torch.uint8).argsort(dim=1, stable=True)[:, :detections]
    columns = torch.cat((boxes, score.unsqueeze(-1), categories.unsqueeze(-1)), -1)
    rows = _rows_at(columns, first) * kept.gather(1, first).unsqueeze(-1)
    # A candidate that was left out would come after the last row, or its category has enough.
    least = rows[:, -1, 4] if detections <= score.shape[1] else torch.zeros_like(score[:, 0])
    left_out = best.gather(1, cells).amin(1) if cells.shape[1] < best.shape[1] else torch.zeros_like(least)
    is_complete = is_settled & (score[:, -1] <= least) & (left_out <= least.clamp(min=min_score))
    is_complete &= (is_full | (last <= least.unsqueeze(1))).all(1)
    return rows.masked_fill(~is_complete[:, None, None], torch.nan)


def _rows_at(values: Tensor, index: Tensor) -> Tensor:
    """Return some rows of each photo: ``[B, P, F]``, ``[B, N]`` to ``[B, N, F]``."""
    return values.gather(1, index.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


class Graphed:
    """A function of tensors ``[B, ...]``, called on a GPU as a CUDA graph: the host launches it as a whole.

    There is a graph for each shape that comes often. Batches are padded to 1, 2, 4, 8 … photos, so that there are few.
    """

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function, self.calls = function, collections.Counter[torch.Size]()
        self.graphs: dict[torch.Size, tuple[torch.cuda.CUDAGraph, Sequence[Tensor], Tensor]] = {}

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
            self.graphs[shape] = self._capture(inputs)
        graph, memory, result = self.graphs[shape]
        for tensor, given in zip(memory, inputs, strict=True):
            tensor.copy_(given)
        graph.replay()
        return result[:number].clone()

    def _capture(self, inputs: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, Sequence[Tensor], Tensor]:
        memory, graph = [tensor.clone() for tensor in inputs], torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values()))[0].pool() if self.graphs else None
        # Meanwhile, other threads decode photos into memory that they pin, and count.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            result = self.function(*memory)
        return graph, memory, result
