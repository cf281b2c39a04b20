"""Large photos and crowds: count in a pyramid of overlapping windows.

A detector sees a photo at 640 px, so a large photo loses its small objects. It is therefore cut into overlapping
windows at several scales. Each object is counted at one scale and in one window: the finest scale at which its box is
shorter than `MAX_OBJECT`, and the window whose cell holds the centre of its box. The count of the photo is then a total
over windows. docs/results/estimator/windows.md has the figures.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.calibration import LISTED_PROBABILITY
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.estimator.inference import infer_pairs
from tallybox.estimator.inputs import pairs_of_images
from tallybox.estimator.prediction import CountPrediction, ImagePredictions, write_out_tail
from tallybox.photos.images import Photo

Tiles = Literal["auto", "off"] | int

WINDOW = 640  # pixels of a side, as the embedded detector sees them
STRIDE = 320  # pixels from window to window, at most
MAX_OBJECT = 480  # pixels of a window: the longer side of the objects that are counted at a scale
LARGE = 1280  # pixels of the longer side from which a photo is counted in windows
MIN_WINDOW = 64  # pixels of the photo
LEVEL_GAP = 1.25  # no scale at which the photo is less than so much larger than a window
# Calibrated on mosaics of labelled photos by `research/windows.py`.
TAIL_PROBABILITY = 0.02  # that an interval leaves out on each side, so that 90 % of intervals cover the true count
EXPECTED_FACTOR = 1.02
MIN_CROWD = 10  # counts from here on that reach a limit are counted again in windows
NEGLIGIBLE = 1e-12  # probability


class Window(NamedTuple):
    """A part of a photo, and the objects that are counted in it, in pixels of the photo."""

    scale: float  # pixels of the window for one of the photo
    box: tuple[int, int, int, int]
    cell: tuple[float, float, float, float]  # holds the centres of its objects
    sides: tuple[float, float]  # of its objects, the longer one: from, and below


def check_tiles(tiles: Tiles) -> Tiles:
    """Return a setting for windows: "auto", "off" or the side of the finest windows in pixels of the photo."""
    if tiles in ("auto", "off") or (isinstance(tiles, int) and not isinstance(tiles, bool) and tiles >= MIN_WINDOW):
        return tiles
    raise InputError(f'tiles must be "auto", "off" or a number of pixels from {MIN_WINDOW} on; got {tiles!r}')


def window_side(size_wh: tuple[int, int], tiles: Tiles) -> int:
    """Return the side of the finest windows in pixels of the photo, 0 for none.

    >>> window_side((640, 480), "auto"), window_side((4000, 3000), "auto"), window_side((4000, 3000), "off")
    (0, 640, 0)
    """
    if tiles == "auto":
        return WINDOW if max(size_wh) >= LARGE else 0
    return 0 if tiles == "off" or tiles >= max(size_wh) else int(tiles)


def plan_windows(size_wh: tuple[int, int], side: int = WINDOW) -> list[Window]:
    """Return the windows of a photo, the finest scale first; ``side`` is theirs there, in pixels of the photo.

    >>> [len(plan_windows(size_wh)) for size_wh in ((1280, 960), (1920, 1920), (8000, 6000))]
    [7, 30, 571]
    """
    longer, scale, scales = max(size_wh), WINDOW / side, []
    while scale * longer > LEVEL_GAP * WINDOW:
        scales.append(scale)
        scale /= 2
    windows, smallest = [], 0.0
    for scale in (*scales, WINDOW / longer):
        is_whole = scale == WINDOW / longer
        largest = np.inf if is_whole else MAX_OBJECT / scale
        across, down = (
            _spans(length, length if is_whole else min(length, round(WINDOW / scale))) for length in size_wh
        )
        windows += [
            Window(scale, (x[0], y[0], x[1], y[1]), (x[2], y[2], x[3], y[3]), (smallest, largest))
            for y in down
            for x in across
        ]
        smallest = largest
    return windows


def _spans(length: int, side: int) -> list[tuple[int, int, float, float]]:
    """Return start and end of each window along a side of the photo, and those of its cell."""
    number = 1 + -(-(length - side) * WINDOW // (side * STRIDE))
    starts = np.linspace(0, length - side, number).round().astype(int).tolist()
    bounds = [-np.inf, *((before + side + after) / 2 for before, after in pairwise(starts)), np.inf]
    return [(start, start + side, low, high) for start, (low, high) in zip(starts, pairwise(bounds), strict=True)]


def crop_windows(photo: Photo, windows: Sequence[Window]) -> Iterator[Photo]:
    """Yield the windows of a photo, in pixels of their scale or more; windows of the finest scale come first."""
    level, factor = photo.image, photo.image.width / photo.size_wh[0]  # pixels of the level for one of the photo
    for window in windows:
        while window.scale <= factor / 2:
            level, factor = level.reduce(2), factor / 2
        x1, y1, x2, y2 = window.box
        left, top, right, bottom = (round(corner * factor) for corner in window.box)
        crop = level.crop((left, top, min(right, level.width), min(bottom, level.height)))
        yield Photo(crop, (x2 - x1, y2 - y1), photo.name)


def owned(boxes: NDArray[np.float32], window: Window) -> NDArray[np.bool_]:
    """Return which boxes ``[N, 4]``, in pixels of the photo, are counted in a window."""
    centres, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).max(1, initial=0)
    in_cell = ((window.cell[:2] <= centres) & (centres < window.cell[2:])).all(1)
    kept: NDArray[np.bool_] = in_cell & (window.sides[0] <= sides) & (sides < window.sides[1])
    return kept


def join_windows(photo: Photo, windows: Sequence[Window], found: Sequence[Detections]) -> Detections:
    """Return the detections of a photo from those in its windows, each object once."""
    boxes = [
        image.boxes + np.array(window.box[:2] * 2, np.float32) for window, image in zip(windows, found, strict=True)
    ]
    kept = [owned(shifted, window) for window, shifted in zip(windows, boxes, strict=True)]
    scores = [image.scores[rows] for image, rows in zip(found, kept, strict=True)]
    category_ids = [image.category_ids[rows] for image, rows in zip(found, kept, strict=True)]
    joined_boxes = np.concatenate([shifted[rows] for shifted, rows in zip(boxes, kept, strict=True)])
    return Detections(joined_boxes, np.concatenate(scores), np.concatenate(category_ids), photo.size_wh, photo.name)


def split_windows(detections: Detections, side: int) -> list[Detections]:
    """Return the detections of each window, as far as any are counted in it."""
    assert detections.image_size is not None
    of_windows = (owned(detections.boxes, window) for window in plan_windows(detections.image_size, side))
    return [
        Detections(
            detections.boxes[rows], detections.scores[rows], detections.category_ids[rows], detections.image_size
        )
        for rows in of_windows
        if rows.any()
    ]


def count_windows(
    estimator: CountEstimator, detections: Detections, side: int, categories: Categories = None
) -> ImagePredictions:
    """Return the counts of a photo as totals over its windows; windows are independent given the estimator."""
    asked = estimator.category_ids(categories)
    (detections,) = estimator.matched([detections])
    images = split_windows(detections, side)
    pairs = pairs_of_images(images, None)
    inference = infer_pairs(estimator.fitted, images, pairs)
    arrays, moments = inference.predictions("population"), inference.moments()
    written_out = write_out_tail(arrays.probabilities, inference.tail_mean)
    by_id: dict[int, CountPrediction] = {}
    sums: dict[int, NDArray[np.float64]] = {}
    for category_id in np.unique(pairs.category_ids).tolist() if asked is None else asked:
        rows = pairs.category_ids == category_id
        sums[category_id] = moments[rows].sum(0)
        sums[category_id][2] = 1  # one photo
        total = _sum_distribution(written_out[rows])
        if asked is None and 1 - total[0] <= LISTED_PROBABILITY:
            continue
        expected = EXPECTED_FACTOR * float(arrays.expected[rows].sum())
        count, at_most = int(expected + 0.5), total.cumsum()
        by_id[category_id] = CountPrediction(
            count=count,  # the mean: on mosaics its error is 0.05 smaller than the median's
            most_probable=int(total.argmax()),
            expected=expected,
            low=min(int((at_most < TAIL_PROBABILITY).sum()), count),
            high=max(int((at_most < 1 - TAIL_PROBABILITY).sum()), count),
            at_least=0,
            saturated=bool(arrays.saturated[rows].any()),
            probabilities=total,
            calibrated=category_id in estimator.fitted.category_ids,
        )
    names = detections.category_names or estimator.fitted.categories
    return ImagePredictions(by_id, names, complete=asked is None, moments=sums)


def _sum_distribution(distributions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distribution of a sum of independent counts, ``[P, T]`` to ``[any]``."""
    total = np.ones(1)
    for distribution in distributions:
        total = np.convolve(total, distribution)
        total = total[: 1 + int(np.flatnonzero(total > NEGLIGIBLE)[-1])]
    total /= total.sum()
    return total
