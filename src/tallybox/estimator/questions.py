"""How many of this category are in this image: what is known to answer, for many such questions as tensors.

Legend: Q questions, N proposals of a question, C numbers about a proposal, S numbers about a question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tallybox.boxes import numpy_box_iou, suppress
from tallybox.detections.container import Detections
from tallybox.detections.labels import ABSENT_SCORE_ABOVE
from tallybox.estimator.configuration import NO_THINNING

Floats = NDArray[np.float32]

# Counts that NMS would give at these thresholds tell the readout what is visible at which certainty.
GRID_OVERLAPS = (0.3, 0.5, 0.7, 0.85)
GRID_SCORES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
BEST_SCORES = 8  # of the boxes left by NMS at an overlap of 0.5

SAME_PLACE = 0.6  # overlap from which a box of another category claims the same place
OTHERS_AT_MOST = 150  # best boxes of an image that are looked at for that: overlaps grow with the square
IMAGES_AT_ONCE = 256  # whose questions are gathered and answered together; more would only need more memory
CONTEXT = 5
SUMMARY = len(GRID_OVERLAPS) * len(GRID_SCORES) + BEST_SCORES + 11

# Scores nearer to 0 or 1 than this are as good as there.
LEAST_SCORE = 1e-3
LEAST_AREA = 1e-5


@dataclass(frozen=True)
class Questions:
    """What a model sees. Padding is masked; proposals stand in order of their scores."""

    scores: Tensor  # [Q, N]
    boxes: Tensor  # [Q, N, 4]
    mask: Tensor  # [Q, N] bool
    context: Tensor  # [Q, N, C]: rivals at the same place, area, the category's best score, number and shape of boxes
    summary: Tensor  # [Q, S]
    categories: Tensor  # [Q] int64 ids
    sources: Tensor  # [Q, N] int64: which box of its image each proposal is

    def __len__(self) -> int:
        return len(self.categories)

    @property
    def sizes(self) -> Tensor:
        """How many proposals each question has, ``[Q]``."""
        return self.mask.sum(1)

    def at(self, index: Tensor) -> Questions:
        """Return some questions, padded no further than they need."""
        longest = max(int(self.mask[index].sum(1).max()) if len(index) else 0, 1)
        return Questions(
            self.scores[index, :longest],
            self.boxes[index, :longest],
            self.mask[index, :longest],
            self.context[index, :longest],
            self.summary[index],
            self.categories[index],
            self.sources[index, :longest],
        )


def in_batches(images: Iterable[Detections]) -> Iterator[list[Detections]]:
    """Yield images in lists of as many as are answered together."""
    remaining = iter(images)
    while batch := list(islice(remaining, IMAGES_AT_ONCE)):
        yield batch


def ask(
    images: Sequence[Detections],
    image_index: NDArray[np.int64],
    category_ids: NDArray[np.int64],
    *,
    proposals: int,
    thinning: float,
) -> Questions:
    """Gather what images say about their categories: question q is about ``images[image_index[q]]``."""
    number = np.array([len(image) for image in images], np.int64)
    first = np.concatenate(([0], number.cumsum()))
    scores = np.concatenate([image.scores for image in images] + [np.zeros(1, np.float32)])
    boxes = np.concatenate([image.boxes for image in images] + [np.zeros((1, 4), np.float32)])
    found = np.concatenate([image.category_ids for image in images] + [np.zeros(1, np.int64)])
    rivals = np.concatenate([rival_scores(image) for image in images] + [np.zeros(1, np.float32)])
    image_of = np.repeat(np.arange(len(images)), number)

    # One sorted list of all boxes: image, category, descending score. A question's boxes are a stretch of it.
    order = np.lexsort((-scores[:-1], found[:-1], image_of))
    known, compact = np.unique(found[:-1], return_inverse=True)
    keys = image_of[order] * (len(known) + 1) + compact[order]
    place = np.searchsorted(known, category_ids)
    is_known = place < len(known)
    is_known[is_known] = known[place[is_known]] == category_ids[is_known]
    wanted = image_index * (len(known) + 1) + np.where(is_known, place, len(known))
    start, end = np.searchsorted(keys, wanted, "left"), np.searchsorted(keys, wanted, "right")

    longest = max(int((end - start).max(initial=0)), 1)
    most = min(proposals, longest) if thinning >= NO_THINNING else longest
    steps = start[:, None] + np.arange(most)  # [Q, N]
    mask = steps < end[:, None]
    padded = np.append(order, len(order))  # the last box, all 0, stands for padding
    index = padded[np.where(mask, steps, len(order))]
    if thinning < NO_THINNING:
        index, mask = _thinned(index, mask, boxes, proposals, thinning, padding=len(order))

    own_scores, own_boxes = scores[index], boxes[index]
    context = _context(own_scores, own_boxes, rivals[index], mask, _extents(images)[image_index], end - start)
    others = _others(scores[order], keys, image_of[order], len(images), (start, end), wanted, image_index)
    summary = _summary(own_scores, own_boxes, mask, context, others)
    sources = np.where(mask, index - first[image_index][:, None], -1)
    return Questions(
        *(torch.from_numpy(array) for array in (own_scores, own_boxes, mask, context, summary, category_ids, sources))
    )


def join(parts: Sequence[Questions]) -> Questions:
    """Put questions of several calls together, padded to the longest."""
    longest = max(part.scores.shape[1] for part in parts)

    def padded(name: str) -> Tensor:
        tensors = [getattr(part, name) for part in parts]
        if name in ("summary", "categories"):
            return torch.cat(tensors)
        pads = [(0, 0) * (tensor.ndim - 2) + (0, longest - tensor.shape[1]) for tensor in tensors]
        return torch.cat([torch.nn.functional.pad(tensor, pad) for tensor, pad in zip(tensors, pads, strict=True)])

    return Questions(*(padded(name) for name in Questions.__dataclass_fields__))


def rival_scores(image: Detections) -> Floats:
    """Return for each box the best score of another category at the same place, ``[N]``."""
    best = np.zeros(len(image), np.float32)
    chosen = np.arange(len(image))
    if len(image) > OTHERS_AT_MOST:
        chosen = np.sort(np.argsort(-image.scores, kind="stable")[:OTHERS_AT_MOST])
    if len(chosen):
        categories, scores = image.category_ids[chosen], image.scores[chosen]
        rival = numpy_box_iou(image.boxes[chosen], image.boxes[chosen]) > SAME_PLACE
        rival &= categories[:, None] != categories
        best[chosen] = (rival * scores).max(1)
    return best


def _extents(images: Sequence[Detections]) -> Floats:
    """Width and height [B, 2] that all boxes of an image reach: files of detections do not tell the photo's size."""
    reach = [image.boxes[:, 2:].max(0) if len(image) else np.ones(2, np.float32) for image in images]
    return np.maximum(np.array(reach, np.float32).reshape(-1, 2), 1e-6)


def _others(
    scores: Floats, keys: Any, image_of: Any, images: int, stretches: Any, wanted: Any, image_index: Any
) -> Floats:
    """What the other categories of an image show, [Q, 3]: log numbers of likely boxes, and the best logit.

    ``scores``, ``keys`` and ``image_of`` are those of all boxes, sorted; a question's own are a stretch of them.
    """
    start, end = stretches
    columns = []
    for likely in (0.2, 0.5):
        above = np.concatenate(([0], (scores > likely).cumsum()))
        in_image = np.bincount(image_of, scores > likely, minlength=images)
        columns.append(np.log1p(in_image[image_index] - (above[end] - above[start])))
    first = np.flatnonzero(np.diff(keys, prepend=-1))  # where a category begins: its best score
    best, best_key, second = np.zeros(images, np.float32), np.full(images, -1), np.zeros(images, np.float32)
    rising = first[np.argsort(scores[first], kind="stable")]  # so that the best of an image is written last
    best[image_of[rising]], best_key[image_of[rising]] = scores[rising], keys[rising]
    others = rising[keys[rising] != best_key[image_of[rising]]]
    second[image_of[others]] = scores[others]
    columns.append(_logit(np.where(best_key[image_index] == wanted, second[image_index], best[image_index])))
    return np.column_stack(columns).astype(np.float32)


def _context(scores: Floats, boxes: Floats, rivals: Floats, mask: Any, extents: Floats, found: Any) -> Floats:
    size = (boxes[..., 2:] - boxes[..., :2]) / extents[:, None]  # [Q, N, 2]
    area = np.log(np.clip(size.prod(-1), LEAST_AREA, 1))
    shape = np.log(np.clip(size[..., 0], LEAST_AREA, 1)) - np.log(np.clip(size[..., 1], LEAST_AREA, 1))
    best = np.broadcast_to(_logit(scores[:, :1]), scores.shape)
    many = np.broadcast_to(np.log1p(found.astype(np.float32))[:, None], scores.shape)
    context: Floats = np.stack((_logit(rivals), area, best, many, shape), axis=-1)
    return np.where(mask[..., None], context, np.float32(0))


def _summary(scores: Floats, boxes: Floats, mask: Any, context: Floats, others: Floats) -> Floats:
    questions = len(scores)
    size = mask.sum(1)
    summary = np.zeros((questions, SUMMARY), np.float32)
    for rows in _groups_of_similar_size(size):
        longest = max(int(size[rows].max()), 1)
        own = np.where(mask[rows, :longest], scores[rows, :longest], 0)
        ordered = boxes[rows, :longest]
        overlaps = numpy_box_iou(ordered, ordered)[:, None] > np.array(GRID_OVERLAPS, np.float32)[:, None, None]
        candidates = np.repeat(mask[rows, None, :longest], len(GRID_OVERLAPS), axis=1)
        kept = suppress(overlaps, candidates)  # [Q, T, N]
        above = own[:, :, None] >= np.array(GRID_SCORES, np.float32)  # [Q, N, scores]
        grid = kept.astype(np.float32) @ above.astype(np.float32)
        best = np.zeros((len(rows), BEST_SCORES), np.float32)
        left = -np.sort(-np.where(kept[:, 1], own, 0), axis=1)[:, :BEST_SCORES]
        best[:, : left.shape[1]] = left
        summary[rows, : grid[0].size + BEST_SCORES] = np.concatenate(
            (np.log1p(grid).reshape(len(rows), -1), _logit(best)), axis=1
        )
    any_box = np.maximum(size, 1).astype(np.float32)
    area = context[..., 1]
    nothing, faint = size == 0, (size > 0) & (scores[:, 0] <= ABSENT_SCORE_ABOVE)
    summary[:, -11:] = np.column_stack(
        (
            context[:, 0, 3],
            np.where(nothing, np.log(LEAST_SCORE), context[:, 0, 2]),
            area.sum(1) / any_box,
            np.where(mask, area, np.log(LEAST_AREA)).max(1),
            context[:, 0, 0],
            context[:, 0, 1],
            others,
            nothing,
            faint,
        )
    )
    return summary


def _groups_of_similar_size(size: NDArray[np.int64], most: int = 512) -> list[NDArray[np.int64]]:
    order = np.argsort(size, kind="stable")
    return [order[start : start + most] for start in range(0, len(order), most)]


def _thinned(
    index: NDArray[np.int64], mask: Any, boxes: Floats, proposals: int, thinning: float, padding: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Keep the best ``proposals`` of boxes in order of their scores, none of which overlaps a better one too much.

    A step for each box that is kept, not for each that is there: there may be thousands.
    """
    width = min(proposals, index.shape[1])
    chosen, real = np.full((len(index), width), padding), np.zeros((len(index), width), np.bool_)
    for rows in _groups_of_similar_size(mask.sum(1), most=128):
        longest = max(int(mask[rows].sum(1).max()), 1)
        own, left = boxes[index[rows, :longest]], mask[rows, :longest].copy()
        for step in range(width):
            some = left.any(1)
            if not some.any():
                break
            best = left.argmax(1)
            chosen[rows, step] = np.where(some, index[rows, best], padding)
            real[rows, step] = some
            left &= numpy_box_iou(own, own[np.arange(len(rows)), best][:, None])[..., 0] <= thinning
            left[np.arange(len(rows)), best] = False
    return chosen, real


def _logit(scores: Floats) -> Floats:
    clipped = np.clip(scores, LEAST_SCORE, 1 - LEAST_SCORE)
    logit: Floats = np.log(clipped / (1 - clipped))
    return logit
