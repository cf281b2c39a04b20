"""The inputs of a model: numbers about pairs of an image and a category, as tensors of many pairs.

Legend: P pairs, N proposals of a pair, C numbers about a proposal, S numbers about a pair, G pairs of NMS thresholds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from tallybox.boxes import first_kept, numpy_box_iou, overlap_by_more, suppress
from tallybox.checks import check_count
from tallybox.detections.baselines import SCORE_THRESHOLDS
from tallybox.detections.detections import Detections, Floats, Integers
from tallybox.detections.labels import ABSENT_SCORE_ABOVE, Pairs
from tallybox.errors import InputError

Booleans = NDArray[np.bool_]

# The counts that NMS gives at these thresholds tell the readout how many boxes there are at which certainty.
GRID_OVERLAPS = (0.3, 0.5, 0.7, 0.85)
GRID_SCORES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
BEST_SCORES = 8  # of the boxes left by NMS at an overlap of 0.5

RIVAL_IOU = 0.6  # overlap from which a box of another category is a rival
MAX_RIVALS = 150  # only the best boxes of an image may be rivals, since overlaps grow with the square
LIKELY_SCORES = (0.2, 0.5)
CONTEXT = 5
SUMMARY = len(GRID_OVERLAPS) * len(GRID_SCORES) + BEST_SCORES + 11

# Scores are clipped to this distance from 0 and 1, and areas, as shares of the image, to this minimum.
SUMMARY_MIN_SCORE = 1e-3
MIN_AREA = 1e-5

KEEP_ALL = 1.0  # as ``nms_iou``: no box is removed
IMAGES_PER_BATCH = 256  # only limits memory: larger batches were not faster
PAIRS_PER_BATCH = 64  # of similar size, which need little padding: overlaps grow with its square


@dataclass(frozen=True)
class EstimatorConfig:
    """Sizes of an estimator, stored with it; chosen on a held-out fifth of 3,000 labelled photos of COCO."""

    component: Literal["presence"] = "presence"
    max_objects: int = 0  # counts from here on share one probability; 0 until `fit` chooses it by the labels
    proposals: int = 48  # the best boxes of a category that take part
    nms_iou: float = KEEP_ALL  # of boxes that overlap by more than this, only the best takes part
    members: int = 8  # models whose distributions are averaged; each leaves another part of the photos out
    hidden: int = 64  # units of the readout
    dropout: float = 0.3  # of these, during training

    def __post_init__(self) -> None:
        check_count("members", self.members)
        if self.members < 2:
            raise InputError(f"members must be at least 2, not {self.members}: each leaves photos out")


OF_PROPOSALS = 5  # how many fields of `ModelInputs` have a dimension of proposals


class ModelInputs(NamedTuple):
    """Inputs of a model. Padding is masked; proposals stand in order of their scores."""

    scores: Tensor  # [P, N]
    boxes: Tensor  # [P, N, 4]
    mask: Tensor  # [P, N] bool
    context: Tensor  # [P, N, C]: best rival, area, the category's best score and number of boxes, shape
    sources: Tensor  # [P, N] int64: which box of its image each proposal is
    summary: Tensor  # [P, S]
    category_rows: Tensor  # [P] int64: rows of a model's tables of categories
    truncated: Tensor  # [P] bool: the image has more likely boxes of the category than take part
    nms_counts: Tensor  # [P, G] int64: counts of NMS at `GRID_OVERLAPS` and, within each, `SCORE_THRESHOLDS`

    @property
    def sizes(self) -> Tensor:
        """The number of proposals of each pair, ``[P]``."""
        return self.mask.sum(1)

    def at(self, index: Tensor) -> "ModelInputs":
        """Return some pairs ``[...]``, padded no further than they need."""
        longest = max(int(self.mask[index].sum(-1).max()) if index.numel() else 0, 1)
        of_proposals = (tensor[index, :longest] for tensor in self[:OF_PROPOSALS])
        return ModelInputs._make((*of_proposals, *(tensor[index] for tensor in self[OF_PROPOSALS:])))

    def to(self, device: torch.device) -> "ModelInputs":
        """Return the inputs on another device."""
        return ModelInputs(*(tensor.to(device) for tensor in self))

    def evidence(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the best score of each pair ``[P]``, 0 where there is no box, and its summary ``[P, S]``."""
        return self.scores[:, 0].double().numpy(), self.summary.double().numpy()


def pairs_of_images(images: Sequence[Detections], category_ids: Sequence[int] | None) -> Pairs:
    """Return a pair of each image with each of the categories, or if None, with those that were detected in it."""
    ids_of_images = [sorted(image.best_scores()) if category_ids is None else category_ids for image in images]
    index = np.repeat(np.arange(len(images)), [len(ids) for ids in ids_of_images])
    return Pairs(index, np.array([*chain.from_iterable(ids_of_images)], np.int64))


def category_rows(known_ids: Sequence[int] | Integers, category_ids: Integers) -> Integers:
    """Return the rows of categories ``[P]`` in a table of known ones, from 1 on; 0 for any other."""
    known = np.array(known_ids, np.int64)
    return np.where(np.isin(category_ids, known), np.searchsorted(known, category_ids) + 1, 0)


def model_inputs(
    images: Sequence[Detections], pairs: Pairs, config: EstimatorConfig, labelled_ids: tuple[int, ...]
) -> ModelInputs:
    """Return the inputs for pairs; ``labelled_ids`` are those of the categories that a model has rows for."""
    image_index, category_ids = pairs
    number = np.array([len(image) for image in images], np.int64)
    first = np.concatenate(([0], number.cumsum()))
    # All boxes of all images, and one more, all 0, that stands for padding.
    scores = np.concatenate([image.scores for image in images] + [np.zeros(1, np.float32)])
    boxes = np.concatenate([image.boxes for image in images] + [np.zeros((1, 4), np.float32)])
    rivals = np.concatenate([rival_scores(image) for image in images] + [np.zeros(1, np.float32)])
    box_categories = np.concatenate([np.zeros(0, np.int64)] + [image.category_ids for image in images])
    image_of = np.repeat(np.arange(len(images)), number)

    # The boxes sorted by image, category and descending score: those of a pair, which have one key, stand together.
    order = np.lexsort((-scores[:-1], box_categories, image_of))
    detected_ids = np.unique(box_categories)
    columns = len(detected_ids) + 1
    keys = (image_of * columns + category_rows(detected_ids, box_categories))[order]
    pair_keys = image_index * columns + category_rows(detected_ids, category_ids)
    start, end = np.searchsorted(keys, pair_keys, "left"), np.searchsorted(keys, pair_keys, "right")

    longest = max(int((end - start).max(initial=0)), 1)
    width = min(config.proposals, longest) if config.nms_iou >= KEEP_ALL else longest
    steps = start[:, None] + np.arange(width)  # [P, N]
    mask = steps < end[:, None]
    index = np.append(order, len(order))[np.where(mask, steps, len(order))]  # of boxes; the last is padding
    if config.nms_iou < KEEP_ALL:
        index, mask = _suppressed(index, mask, boxes, config, padding=len(order))

    pair_scores, pair_boxes = scores[index], boxes[index]
    # The width and height that all boxes of an image reach: its size may be unknown.
    reach = [image.boxes[:, 2:].max(0) if len(image) else np.ones(2, np.float32) for image in images]
    extents = np.maximum(np.array(reach, np.float32).reshape(-1, 2), 1e-6)[image_index]
    context = _context(pair_scores, pair_boxes, rivals[index], mask, extents, end - start)
    surroundings = _other_categories(scores[order], keys, pair_keys, (len(images), columns))
    summary, nms_counts = _summary(pair_scores, pair_boxes, mask, context, surroundings)
    sources = np.where(mask, index - first[image_index][:, None], -1)
    rows = category_rows(labelled_ids, category_ids)
    # Faint boxes that were left out do not matter: there are many in ordinary photos.
    truncated = (mask.sum(1) >= config.proposals) & (end - start > config.proposals)
    truncated &= pair_scores.min(1) >= LIKELY_SCORES[0]
    arrays = (pair_scores, pair_boxes, mask, context, sources, summary, rows, truncated, nms_counts)
    return ModelInputs(*map(torch.from_numpy, arrays))


def inputs_of_many(
    images: Sequence[Detections], pairs: Pairs, config: EstimatorConfig, labelled_ids: tuple[int, ...]
) -> ModelInputs:
    """Return `model_inputs` for pairs in the order of their images, a batch of images at a time to save memory."""
    parts = []
    for first in range(0, len(images), IMAGES_PER_BATCH):
        last = first + IMAGES_PER_BATCH
        rows = (pairs.image_index >= first) & (pairs.image_index < last)
        of_batch = Pairs(pairs.image_index[rows] - first, pairs.category_ids[rows])
        parts.append(model_inputs(images[first:last], of_batch, config, labelled_ids))
    longest = max(part.scores.shape[1] for part in parts)

    def padded(tensor: Tensor) -> Tensor:
        return pad(tensor, (0, 0) * (tensor.ndim - 2) + (0, longest - tensor.shape[1]))

    fields = list(zip(*parts, strict=True))
    of_proposals = (torch.cat([padded(tensor) for tensor in tensors]) for tensors in fields[:OF_PROPOSALS])
    return ModelInputs._make((*of_proposals, *(torch.cat(tensors) for tensors in fields[OF_PROPOSALS:])))


def rival_scores(image: Detections) -> Floats:
    """Return for each box the best score of a box of another category that overlaps it much, ``[N]``."""
    best = np.zeros(len(image), np.float32)
    chosen = np.argsort(-image.scores, kind="stable")[:MAX_RIVALS]
    boxes, scores, categories = image.boxes[chosen], image.scores[chosen], image.category_ids[chosen]
    rival = (numpy_box_iou(boxes, boxes) > RIVAL_IOU) & (categories[:, None] != categories)
    best[chosen] = (rival * scores).max(1, initial=0)
    return best


def _other_categories(scores: Floats, keys: Integers, pair_keys: Integers, shape: tuple[int, int]) -> Floats:
    """Return numbers about the other categories of each pair's image, ``[P, 3]``.

    They are the logarithms of how many boxes are likely, at two thresholds, and the logit of the best score.
    ``scores`` and ``keys`` are of all boxes, ``pair_keys`` of pairs: cells of a table of images and categories.
    """
    image_index = pair_keys // shape[1]
    columns = []
    for likely in LIKELY_SCORES:
        number = np.bincount(keys, scores > likely, minlength=shape[0] * shape[1])
        columns.append(np.log1p(number.reshape(shape).sum(1)[image_index] - number[pair_keys]))
    best = np.zeros(shape[0] * shape[1], np.float32)
    np.maximum.at(best, keys, scores)
    two_best = np.sort(best.reshape(shape), axis=1)[:, -2:][image_index]
    columns.append(logit(np.where(best[pair_keys] == two_best[:, -1], two_best[:, 0], two_best[:, -1])))
    return np.column_stack(columns).astype(np.float32)


def _context(scores: Floats, boxes: Floats, rivals: Floats, mask: Any, extents: Floats, detected: Any) -> Floats:
    """Return the context of each proposal, as `ModelInputs` lists it; ``detected [P]`` is how many boxes there are."""
    size = (boxes[..., 2:] - boxes[..., :2]) / extents[:, None]  # [P, N, 2]
    area = np.log(np.clip(size.prod(-1), MIN_AREA, 1))
    shape = np.log(np.clip(size[..., 0], MIN_AREA, 1)) - np.log(np.clip(size[..., 1], MIN_AREA, 1))
    best = np.broadcast_to(logit(scores[:, :1]), scores.shape)
    many = np.broadcast_to(np.log1p(detected.astype(np.float32))[:, None], scores.shape)
    context: Floats = np.stack((logit(rivals), area, best, many, shape), axis=-1)
    return np.where(mask[..., None], context, np.float32(0))


def _summary(
    scores: Floats, boxes: Floats, mask: Any, context: Floats, surroundings: Floats
) -> tuple[Floats, Integers]:
    """Return the summary of each pair ``[P, S]``, of NMS counts and of all boxes, and finer NMS counts ``[P, G]``."""
    size = mask.sum(1)
    summary = np.zeros((len(scores), SUMMARY), np.float32)
    nms_counts = np.zeros((len(scores), len(GRID_OVERLAPS) * len(SCORE_THRESHOLDS)), np.int64)
    for rows, longest in _of_similar_size(size):
        masked_scores = np.where(mask[rows, :longest], scores[rows, :longest], 0)
        ordered = boxes[rows, :longest]
        overlaps = numpy_box_iou(ordered, ordered)[:, None] > np.array(GRID_OVERLAPS, np.float32)[:, None, None]
        candidates = np.repeat(mask[rows, None, :longest], len(GRID_OVERLAPS), axis=1)
        kept = suppress(overlaps, candidates)  # [P, T, N]
        above = masked_scores[:, :, None] >= np.array((*GRID_SCORES, *SCORE_THRESHOLDS), np.float32)  # [P, N, scores]
        grid, finer = np.split(kept.astype(np.float32) @ above.astype(np.float32), [len(GRID_SCORES)], axis=2)
        nms_counts[rows] = finer.reshape(len(rows), -1)
        best = np.zeros((len(rows), BEST_SCORES), np.float32)
        descending = -np.sort(-np.where(kept[:, 1], masked_scores, 0), axis=1)[:, :BEST_SCORES]
        best[:, : descending.shape[1]] = descending
        summary[rows, : grid[0].size + BEST_SCORES] = np.concatenate(
            (np.log1p(grid).reshape(len(rows), -1), logit(best)), axis=1
        )
    any_box = np.maximum(size, 1).astype(np.float32)
    area = context[..., 1]
    nothing, faint = size == 0, (size > 0) & (scores[:, 0] <= ABSENT_SCORE_ABOVE)
    summary[:, -11:] = np.column_stack(
        (
            context[:, 0, 3],
            np.where(nothing, np.log(SUMMARY_MIN_SCORE), context[:, 0, 2]),
            area.sum(1) / any_box,
            np.where(mask, area, np.log(MIN_AREA)).max(1),
            context[:, 0, 0],
            context[:, 0, 1],
            surroundings,
            nothing,
            faint,
        )
    )
    return summary, nms_counts


def _suppressed(
    index: Integers, mask: Booleans, boxes: Floats, config: EstimatorConfig, padding: int
) -> tuple[Integers, Booleans]:
    """Keep the best proposals that NMS leaves of boxes in order of their scores; a pair may have thousands."""
    chosen = np.full((len(index), min(config.proposals, index.shape[1])), padding)
    enough, size = chosen.shape[1], mask.sum(1)

    def keep(some: Integers) -> Booleans:
        return suppress(overlap_by_more(boxes[some], config.nms_iou))

    for rows, longest in _of_similar_size(size):
        first = min(longest, 4 * enough)
        some = index[rows, :first]
        kept = suppress(overlap_by_more(boxes[some], config.nms_iou), mask[rows, :first])
        best = np.argsort(~kept, axis=1, kind="stable")[:, :enough]
        chosen[rows, : best.shape[1]] = np.take_along_axis(np.where(kept, some, padding), best, axis=1)
        for row in rows[(kept.sum(1) < enough) & (size[rows] > first)].tolist():
            of_row = first_kept(index[row, : size[row]], keep, enough=enough, candidates=2 * first)
            chosen[row, : len(of_row)] = of_row
    return chosen, chosen != padding


def _of_similar_size(size: Integers) -> Iterator[tuple[Integers, int]]:
    """Yield the rows of some pairs at a time, and the largest of their sizes, at least 1."""
    by_size = np.argsort(size, kind="stable")
    for start in range(0, len(size), PAIRS_PER_BATCH):
        rows = by_size[start : start + PAIRS_PER_BATCH]
        yield rows, max(int(size[rows[-1]]), 1)


def logit(scores: NDArray[Any]) -> NDArray[Any]:
    """Return the logit of scores, which are clipped to a distance from 0 and 1."""
    clipped = np.clip(scores, SUMMARY_MIN_SCORE, 1 - SUMMARY_MIN_SCORE)
    result: NDArray[Any] = np.log(clipped / (1 - clipped))
    return result
