"""Large photos and crowds: detect in a pyramid of overlapping windows, count in blocks.

A detector sees a photo at 640 px, so a large photo loses its small objects. It is therefore cut into windows at several
scales: tiles side by side, and more windows half-way between them. Each object belongs to one scale and one window: the
finest scale at which the longer side of its box is below `MAX_OBJECT` pixels of a window, and the tile that holds the
whole box, or if none does, the window whose centre is nearest. Of two boxes of one object in different windows, the
better one stays, and so does a large object of which a finer window shows a part.

A scale is used only if it shows clearly more than the coarser ones. So an ordinary photo of many pixels is counted as a
whole.

The estimator was trained on whole photos. So at each scale, the boxes are counted in blocks of the size that a photo
has there (640 px), and the photo's count is the total over its blocks. `research/windows.py` calibrates the intervals.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.boxes import nms_by_category, numpy_box_iou
from tallybox.detections.detections import Detections, Size
from tallybox.errors import InputError
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.estimator.inference import infer_pairs
from tallybox.estimator.inputs import pairs_of_images
from tallybox.estimator.prediction import CountPrediction, ImagePredictions, write_out_tail
from tallybox.photos.detector import Detector
from tallybox.photos.images import Photo
from tallybox.photos.pipeline import detect_photos, map_photos

Tiles = Literal["auto", "off"] | int
Floats = NDArray[np.float64]

WINDOW = 640  # pixels of a side, as the embedded detector sees them
MARGIN = 4  # pixels of a window between a tile's edge and a box that it holds
DUPLICATE_IOU = 0.5  # of boxes of one category in different windows, from which only the better one is kept
PART_OVERLAP = 0.8  # share of a box in a clear box of a coarser scale, from which it shows a part of that object
CLEAR_SCORE = 0.5
MIN_GAIN = 1.2  # of clear objects, from which a finer scale is used
MAX_OBJECT = 480  # pixels of a window
MIN_WINDOW = 64  # pixels of the photo
MIN_REDUCTION = 1.25  # a scale that reduces the whole photo by less is left out
# A block with more objects of a category, as a multiple of the estimator's max_objects, is split in four. Splitting
# earlier hardly improves crowds, and makes mosaics of ordinary photos worse.
CROWDED = 1.25
# If so many of the boxes that a detector returns of a category are no duplicates, there may be more objects: 0.6 % of
# 3,000 photos of COCO, and grids of 48 to 120 people.
DISTINCT_SHARE = 0.75
NEGLIGIBLE = 1e-12  # probability
TAIL_PROBABILITY = 0.02  # that an interval leaves out on each side: `research/windows.py`
# A category is listed from this probability on. At 0.1, as in a small photo, 7 % of the categories that are there were
# left out of mosaics of nine photos, at 0.05 3 %.
LISTED_PROBABILITY = 0.05


class Axis(NamedTuple):
    """Where the windows of one scale lie along the width or the height of a photo: every second one is a tile."""

    starts: NDArray[np.int64]
    side: int

    def owner(self, low: NDArray[np.float32], high: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return the index of the window that each object belongs to, from where its box starts and ends."""
        margin = MARGIN * self.side / WINDOW
        tile = 2 * self._nearest(self.starts[::2], low + high)
        after_start = (tile == 0) | (low >= self.starts[tile] + margin)
        before_end = (tile == len(self.starts) - 1) | (high <= self.starts[tile] + self.side - margin)
        return np.where(after_start & before_end, tile, self._nearest(self.starts, low + high))

    def _nearest(self, starts: NDArray[np.int64], twice_centre: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.searchsorted(starts[1:] + starts[:-1] + self.side, twice_centre, side="right")


class Window(NamedTuple):
    """A part of a photo, and which objects belong to it, in pixels of the photo."""

    scale: float  # pixels of the window for one of the photo
    box: tuple[int, int, int, int]
    axes: tuple[Axis, Axis]
    place: tuple[int, int]  # its index along each axis
    sides: tuple[float, float]  # of its objects, the longer one: from, and below


def check_tiles(tiles: object) -> Tiles:
    """Return a setting for windows: "auto", "off", or the side of the finest windows in pixels of the photo."""
    if tiles == "auto" or tiles == "off" or (type(tiles) is int and tiles >= MIN_WINDOW):
        return tiles
    raise InputError(f'tiles must be "auto", "off" or a number of pixels from {MIN_WINDOW} on; got {tiles!r}')


def window_side(size_wh: Size, tiles: Tiles, *, fitted_side: int = 0, crowded: bool = False) -> int:
    """Return the side of the finest windows in pixels of the photo, 0 for none.

    ``fitted_side`` is the longer side of the photos that the estimator was fitted to: it has learned how many objects
    the detector misses in a photo of that size. A photo is ``crowded`` if its count reached a limit.
    """
    longer, smallest = max(size_wh), max(WINDOW, fitted_side)
    if tiles == "auto":
        if longer >= 2 * smallest:
            return smallest
        return longer // 2 if crowded and longer >= 2 * MIN_WINDOW else 0
    return 0 if tiles == "off" or tiles >= longer else tiles


def uses_up(detections: Detections, limit: int) -> bool:
    """Return whether some category has as many boxes as a detector returns, and most of them are no duplicates."""
    ids, numbers = np.unique(detections.category_ids, return_counts=True)
    of_categories = (detections.of_category(category_id) for category_id in ids[numbers >= limit].tolist())
    return any(len(_without_duplicates(image, 0.0)) >= DISTINCT_SHARE * limit for image in of_categories)


def plan_windows(size_wh: Size, side: int = WINDOW) -> list[Window]:
    """Return the windows of a photo, the finest scale first; ``side`` is theirs there, in pixels of the photo.

    >>> [len(plan_windows(size_wh)) for size_wh in ((1280, 960), (1920, 1920), (8000, 6000))]
    [10, 35, 637]
    """
    windows = []
    for scale, sides in _scales(max(size_wh), side):
        across, down = (_axis(length, round(WINDOW / scale)) for length in size_wh)
        windows += [
            Window(scale, (x, y, x + across.side, y + down.side), (across, down), (column, row), sides)
            for row, y in enumerate(down.starts.tolist())
            for column, x in enumerate(across.starts.tolist())
        ]
    return windows


def _scales(longer: int, side: int) -> list[tuple[float, tuple[float, float]]]:
    """Return the scales of a photo with this longer side, and `Window.sides` of each; the last has one window."""
    scales, scale, smallest = [], WINDOW / side, 0.0
    while scale * longer > MIN_REDUCTION * WINDOW:
        largest = MAX_OBJECT / scale
        scales.append((scale, (smallest, largest)))
        scale, smallest = scale / 2, largest
    return [*scales, (WINDOW / longer, (smallest, np.inf))]


def _axis(length: int, side: int) -> Axis:
    """Return windows of at most a side along a length: as few tiles as cover it, and one between each two."""
    side = min(side, length)
    return Axis(np.linspace(0, length - side, 2 * -(-length // side) - 1).round().astype(np.int64), side)


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


def belongs_to(window: Window, boxes: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return which boxes ``[N, 4]``, in pixels of the photo, belong to a window."""
    sides = (boxes[:, 2:] - boxes[:, :2]).max(1, initial=0)
    chosen: NDArray[np.bool_] = (window.sides[0] <= sides) & (sides < window.sides[1])
    for dimension, (axis, place) in enumerate(zip(window.axes, window.place, strict=True)):
        chosen &= axis.owner(boxes[:, dimension], boxes[:, dimension + 2]) == place
    return chosen


def detect_in_windows(
    photo: Photo, side: int, detector: Detector, *, coarser: bool = False
) -> tuple[Detections, int, int]:
    """Return the detections of a photo from overlapping windows, the side of the finest ones, and how many there are.

    With ``coarser``, windows that show hardly more than coarser ones are left out, and the side is 0 if all are.
    """
    windows, found = plan_windows(photo.size_wh, side), list[Detections]()
    for _, image in map_photos(lambda crops: detect_photos(crops, detector), crop_windows(photo, windows), detector):
        if isinstance(image, InputError):
            raise image
        found.append(image)
    if coarser:
        return *join_useful_windows(photo, windows, found), len(windows)
    return join_windows(photo, windows, found), side, len(windows)


def join_windows(photo: Photo, windows: Sequence[Window], found: Sequence[Detections]) -> Detections:
    """Return the detections of a photo from those in its windows, each object from the window that it belongs to."""
    columns = []
    for index, (window, image) in enumerate(zip(windows, found, strict=True)):
        boxes = image.boxes + np.tile(np.array(window.box[:2], np.float32), 2)
        chosen = belongs_to(window, boxes)
        of_window = np.full(chosen.sum(), index)
        columns.append((boxes[chosen], image.scores[chosen], image.category_ids[chosen], of_window))
    boxes, scores, category_ids, of_window = map(np.concatenate, zip(*columns, strict=True))
    joined = Detections(boxes, scores, category_ids, photo.size_wh, photo.name, found[0].category_names)
    return _of_rows(joined, ~_repeated(joined, of_window, np.array([window.scale for window in windows])[of_window]))


def join_useful_windows(photo: Photo, windows: Sequence[Window], found: Sequence[Detections]) -> tuple[Detections, int]:
    """Return the detections of a photo without the scales that do not help, and the side of its finest windows.

    A finer scale helps if it shows `MIN_GAIN` times the clear objects. If none does, the side is 0: ordinary photos are
    best counted as a whole, however many pixels they have.
    """
    useful, side, most = None, 0, 0.0
    for scale in sorted({window.scale for window in windows}):
        pairs = [
            # Where a scale is the finest, it takes the smaller objects as well.
            (window._replace(sides=(0.0, window.sides[1])) if window.scale == scale else window, image)
            for window, image in zip(windows, found, strict=True)
            if window.scale <= scale
        ]
        joined = join_windows(photo, *zip(*pairs, strict=True))
        clear = float(_without_duplicates(joined, CLEAR_SCORE).sum())
        most *= MIN_GAIN
        if useful is None:
            useful, most = joined, max(clear, CLEAR_SCORE)
        elif clear > most:
            useful, side, most = joined, round(WINDOW / scale), clear
    assert useful is not None
    return useful, side


def _without_duplicates(detections: Detections, min_score: float) -> NDArray[np.float32]:
    """Return the scores of the boxes from a score on that NMS leaves."""
    order = np.argsort(-detections.scores, kind="stable")
    order = order[detections.scores[order] >= min_score]
    image = _of_rows(detections, order)
    return image.scores[nms_by_category(image.boxes, image.category_ids, DUPLICATE_IOU, enough=len(order))]


def _repeated(image: Detections, of_window: NDArray[np.int64], scale: Floats) -> NDArray[np.bool_]:
    """Return which boxes ``[N]`` show the object of a better box of their category in another window.

    They overlap it, or lie within a clear box of a coarser scale: a finer window shows a part of a large object.
    """
    boxes, scores, category_ids = image.boxes, image.scores, image.category_ids
    repeated, areas = np.zeros(len(boxes), bool), (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for index in np.unique(of_window):  # one window after another, to save memory
        rows = np.flatnonzero(of_window == index)
        low, high = boxes[rows, :2].min(0), boxes[rows, 2:].max(0)
        is_near = (boxes[:, :2] < high).all(1) & (boxes[:, 2:] > low).all(1)
        near = np.flatnonzero(is_near & (of_window != index))
        better = (scores[near] > scores[rows, None]) & (category_ids[near] == category_ids[rows, None])
        iou = numpy_box_iou(boxes[rows], boxes[near])
        intersection = iou / (1 + iou) * (areas[rows, None] + areas[near])
        is_clear = (scale[near] < scale[rows, None]) & (scores[near] >= CLEAR_SCORE)
        is_part = is_clear & (intersection >= PART_OVERLAP * areas[rows, None])
        repeated[rows] = (better & ((iou >= DUPLICATE_IOU) | is_part)).any(1)
    return repeated


class Block(NamedTuple):
    """The boxes that are counted together, and where the block is in the photo."""

    detections: Detections  # boxes in pixels of the block, so that the estimator sees them as those of a photo
    corner: tuple[float, float]
    size: tuple[float, float]

    def in_photo(self) -> Detections:
        """Return the detections with boxes in pixels of the photo."""
        return replace(self.detections, boxes=self.detections.boxes + np.tile(np.array(self.corner, np.float32), 2))


def blocks_of(detections: Detections, side: int) -> list[Block]:
    """Return the blocks of a photo that have boxes; ``side`` is that of its finest windows."""
    assert detections.image_size is not None
    width, height = detections.image_size
    image = replace(detections, image_size=None, image_id=None)  # blocks have none
    sides = (detections.boxes[:, 2:] - detections.boxes[:, :2]).max(1, initial=0)
    blocks = []
    for scale, (smallest, largest) in _scales(max(width, height), side):
        whole = Block(_of_rows(image, (smallest <= sides) & (sides < largest)), (0, 0), (width, height))
        blocks += _split(whole, max(1, round(width * scale / WINDOW)), max(1, round(height * scale / WINDOW)))
    return blocks


def _split(block: Block, columns: int, rows: int) -> list[Block]:
    """Return the parts of a block that have boxes; a box belongs to the part that holds its centre."""
    boxes, size = block.detections.boxes, (block.size[0] / columns, block.size[1] / rows)
    index = ((boxes[:, :2] + boxes[:, 2:]) / 2 // size).clip(0, (columns - 1, rows - 1)).astype(int)
    parts = []
    for column, row in np.unique(index, axis=0).tolist():
        corner = (column * size[0], row * size[1])
        part = _of_rows(block.detections, (index == (column, row)).all(1), corner)
        parts.append(Block(part, (block.corner[0] + corner[0], block.corner[1] + corner[1]), size))
    return parts


def _of_rows(image: Detections, chosen: NDArray[Any], corner: tuple[float, float] = (0, 0)) -> Detections:
    """Return some detections, with boxes in pixels from a corner."""
    boxes = image.boxes[chosen] - np.tile(np.array(corner, np.float32), 2)
    return replace(image, boxes=boxes, scores=image.scores[chosen], category_ids=image.category_ids[chosen])


def count_blocks(
    estimator: CountEstimator, detections: Detections, side: int, categories: Categories = None
) -> tuple[ImagePredictions, list[Block]]:
    """Return the counts of a photo as totals over its blocks, and the blocks, the crowded ones split.

    The detections have the category ids of the estimator.
    """
    asked, fitted = estimator.category_ids(categories), estimator.fitted
    parts: dict[int, list[tuple[Floats, Floats, bool]]] = {}  # by category: distribution, moments, saturated
    counted, waiting = list[Block](), blocks_of(detections, side)
    for may_split in (True, False):
        images = [block.detections for block in waiting]
        pairs = pairs_of_images(images, None)
        inference = infer_pairs(fitted, images, pairs, estimator.device)
        arrays, moments = inference.predictions("population"), inference.moments()
        distributions = write_out_tail(arrays.probabilities, inference.tail_mean)
        is_crowded = may_split & (arrays.counts >= CROWDED * fitted.config.max_objects)
        crowded = set(pairs.image_index[is_crowded].tolist())
        for row, (index, category_id) in enumerate(zip(*(column.tolist() for column in pairs), strict=True)):
            if index not in crowded:
                part = (distributions[row], moments[row], bool(arrays.saturated[row]))
                parts.setdefault(category_id, []).append(part)
        counted += [block for index, block in enumerate(waiting) if index not in crowded]
        waiting = [part for index in sorted(crowded) for part in _split(waiting[index], 2, 2)]
    nothing = (np.array([1 - fitted.prevalence.undetected, fitted.prevalence.undetected]), np.zeros(0), False)
    by_id, sums = {}, {}
    for category_id in sorted(parts) if asked is None else asked:
        of_blocks, moments_of_blocks, saturated = zip(*parts.get(category_id, [nothing]), strict=True)
        total = _distribution_of_sum(of_blocks)
        if category_id in parts:
            sums[category_id] = np.sum(moments_of_blocks, axis=0)
            sums[category_id][2] = 1  # one photo, when photos are added up
        if asked is not None or 1 - total[0] > LISTED_PROBABILITY:
            is_calibrated = category_id in fitted.category_ids
            by_id[category_id] = _prediction(total, saturated=any(saturated), calibrated=is_calibrated)
    names = detections.category_names or fitted.categories
    return ImagePredictions(by_id, names, complete=asked is None, moments=sums), counted


def _distribution_of_sum(distributions: Sequence[Floats]) -> Floats:
    """Return the distribution of a sum of independent counts."""
    total = np.ones(1)
    for distribution in distributions:
        total = np.convolve(total, distribution)
        total = total[: 1 + int(np.flatnonzero(total > NEGLIGIBLE)[-1])]
    total /= total.sum()
    return total


def _prediction(total: Floats, *, saturated: bool, calibrated: bool) -> CountPrediction:
    expected, at_most = float(total @ np.arange(len(total))), total.cumsum()
    # The median would miss many a category that is there once: it is 0 unless that is more probable than not.
    count = max(int((at_most < 0.5).sum()), int(min(expected, 1) + 0.5))
    low, high = (int((at_most < share).sum()) for share in (TAIL_PROBABILITY, 1 - TAIL_PROBABILITY))
    low, high, best = min(low, count), max(high, count), int(total.argmax())
    return CountPrediction(count, best, expected, low, high, saturated, total, calibrated)
