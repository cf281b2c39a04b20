"""The embedded detector: PicoDet-S for the 80 categories of COCO, on a CPU or a GPU.

A photo is resized so that its longer side has 640 pixels and padded with grey to multiples of 64. Every cell of four
grids proposes a box with a score for each category. Those above 0.05 go through non-maximum suppression (NMS) within
each category, at a high threshold: what is left out cannot be counted.

Legend: B photos, P cells of the network's grids, C categories, N candidates (a cell with a category), D detections.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tallybox.boxes import batched_overlap_by_more, first_kept, nms_by_category, suppress_in_steps
from tallybox.concurrency import call_single_threaded
from tallybox.detections.categories import COCO_CATEGORY_IDS
from tallybox.detections.detections import Detections, Size
from tallybox.devices import device_or_default
from tallybox.errors import InputError
from tallybox.photos.batched import Graphed, boxes_of_cells, flattened, grid, letterbox_on
from tallybox.photos.images import BICUBIC, Photo, boxes_in_photo, fitted_sizes, letterbox, map_same_size
from tallybox.photos.network import STRIDES, CpuNetwork, HeadMaps, load_picodet_network

DEFAULT_SIZE = 640  # AP on 128 photos of COCO: 42.0, against 40.9 at 512 and 38.9 at 768 px
MULTIPLE = STRIDES[-1]  # sides of the network's input are multiples of it
CHANNEL_MEAN, CHANNEL_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of pixels in [0, 1], RGB

# As in the detections that the shipped estimator learned from.
MIN_SCORE = 0.05
NMS_IOU = 0.8  # a box that overlaps a better one of its category by more is left out
MAX_PER_CATEGORY = 60
MAX_DETECTIONS = 200
FIRST_CANDIDATES = 1024  # boxes that go through NMS at first: enough for nearly all photos

# Of batches on a GPU, which are left to the host if they need more.
CELLS, OF_CATEGORY = 4096, 512  # of a photo, and of a category in it, whose candidates are looked at
CANDIDATES = 2048  # of a photo that go through NMS
STEPS = 16  # of NMS: boxes that each depend on the one before, at most

BATCHES = {"cpu": 1, "cuda": 64}  # on a CPU two photos take 130 ms together and 51 each alone, because of its cache
LOADED = {"network", "_mean", "_deviation", "_run", "_stream", "_lock"}
AT_ONCE = 32  # photos of one shape that go through the network together on a GPU


class RawDetections(NamedTuple):
    """What PicoDet proposes for one photo before any suppression: P cells of its grids, 80 categories."""

    boxes_xyxy: NDArray[np.float32]  # [P, 4] pixels of the photo, cut at its edges
    scores: NDArray[np.float32]  # [P, 80] in COCO's order of categories; the best of each row is above MIN_SCORE


class PicoDet:
    """PicoDet-S with its weights; ``device`` is the GPU where there is one.

    ``size`` is the longer side in pixels that photos are resized to; the shipped estimator was fitted to 640.

    >>> from tallybox.photos import read_photo, sample_photos
    >>> riders = PicoDet().detect([read_photo(sample_photos()[1])])[0]
    >>> bool(riders.best_scores()[19] > 0.7)  # category 19 is a horse
    True
    """

    def __init__(self, *, size: int = DEFAULT_SIZE, device: str | torch.device | None = None) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or not MULTIPLE <= size <= 4096:
            raise InputError(f"size must be a whole number of pixels from {MULTIPLE} to 4096, but got {size!r}")
        self.size = size
        self._load(device_or_default(device))

    def _load(self, device: torch.device) -> None:
        self.device, self.batch, self._lock = device, BATCHES.get(device.type, 1), Lock()
        self.network = CpuNetwork() if device.type == "cpu" else load_picodet_network().to(device)
        normal = 255 * torch.tensor((CHANNEL_MEAN, CHANNEL_DEVIATION))
        self._mean, self._deviation = normal.view(2, 3, 1, 1).to(device)
        self._run: Callable[..., Tensor] = Graphed(self._scan) if device.type == "cuda" else self._scan
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # so that others count meanwhile

    def __getstate__(self) -> dict[str, Any]:
        """Leave the network out: another process loads it anew, and may have no GPU."""
        return {name: value for name, value in vars(self).items() if name not in LOADED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._load(device_or_default("cpu" if self.device.type == "cpu" else None))

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the boxes of each photo, up to 200, a box once for each category that scores above 0.05."""
        if self.device.type != "cpu":
            return self.detect_batched(photos)
        return [detections_of(raw, photo) for raw, photo in zip(self.propose(photos), photos, strict=True)]

    @torch.inference_mode()
    def detect_batched(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the same, computed on the device for all photos, with one transfer to the host."""
        if not photos:
            return []
        sizes = [self._sizes(photo)[1] for photo in photos]
        with self._lock, torch.cuda.stream(self._stream):  # a graph has one memory for its inputs
            found = torch.stack(map_same_size(self._launch, photos, sizes, at_once=AT_ONCE)).cpu().numpy()
        detected = []
        for photo, rows in zip(photos, found, strict=True):
            vars(photo).pop("pixels", None)  # pinned memory is short
            if np.isnan(rows[0, 0]):  # it has more candidates than a batch has room for
                detected.append(detections_of(self.propose([photo])[0], photo))
                continue
            rows = rows[rows[:, 4] > 0]
            category_ids = np.array(COCO_CATEGORY_IDS, np.int64)[rows[:, 5].astype(np.int64)]
            detected.append(Detections(rows[:, :4], rows[:, 4], category_ids, photo.size_wh, photo.name))
        return detected

    def _launch(self, photos: Sequence[Photo]) -> Sequence[Tensor]:
        """Start detecting in photos with one size of the network's input; return the rows of each, ``[D, 6]``."""
        sizes = [self._sizes(photo) for photo in photos]
        resized, input_wh = [resized for resized, _ in sizes], sizes[0][1]
        canvas = letterbox_on(self.device, [photo.pixels for photo in photos], resized, input_wh)
        numbers = [(*photo.size_wh, *resized_wh) for photo, resized_wh in zip(photos, resized, strict=True)]
        inputs = canvas, torch.tensor(numbers, dtype=torch.float32).to(self.device)
        return self._run(*inputs).unbind()

    def _scan(self, canvas: Tensor, sizes: Tensor) -> Tensor:
        return best_detections(self._maps(canvas), sizes)

    def _maps(self, canvas: Tensor) -> list[HeadMaps]:
        images = canvas.permute(0, 3, 1, 2).float().sub_(self._mean).div_(self._deviation)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # TensorFloat-32 changes scores by 0.001
            maps: list[HeadMaps] = self.network(images)
        return maps

    def _sizes(self, photo: Photo) -> tuple[Size, Size]:
        """Return the sizes of a resized photo, at least a pixel each, and of the network's input."""
        return fitted_sizes(photo.size_wh, (self.size, self.size), MULTIPLE)

    def propose(self, photos: Sequence[Photo]) -> list[RawDetections]:
        """Return every cell of each photo that scores above 0.05 in some category."""
        # The network averages over its whole input, so that padding a photo further would change its scores:
        # only photos of the same size go through it together.
        sizes, at_once = [self._sizes(photo)[0] for photo in photos], AT_ONCE if self.device.type == "cuda" else 1
        propose = partial(map_same_size, self._propose, photos, sizes, at_once=at_once)
        # On one thread: with another program on a core, two threads wait for each other at every layer (2 s, not 0.1).
        return call_single_threaded(propose) if self.device.type == "cpu" else propose()

    @torch.inference_mode()
    def _propose(self, photos: Sequence[Photo]) -> list[RawDetections]:
        """Run the network on photos of one size when resized."""
        resized_wh, input_wh = self._sizes(photos[0])
        pixels = np.stack([letterbox(photo.image, resized_wh, input_wh, BICUBIC) for photo in photos])
        maps = self._maps(torch.from_numpy(pixels).to(self.device))
        class_logits, quality_logits, distance_logits = flattened(maps)
        centres, strides = grid(maps)
        in_photo = (centres < torch.tensor(resized_wh, device=centres.device)).all(1)
        best = (class_logits.amax(2).sigmoid() * quality_logits[..., 0].sigmoid()).sqrt()  # [B, cells]
        proposed = []
        for image, (photo, enough) in enumerate(zip(photos, (best > MIN_SCORE) & in_photo, strict=True)):
            chosen = enough.nonzero().flatten()
            scores = (class_logits[image, chosen].sigmoid() * quality_logits[image, chosen].sigmoid()).sqrt()
            boxes = boxes_of_cells(distance_logits[image, chosen], centres[chosen], strides[chosen]).cpu().numpy()
            proposed.append(RawDetections(boxes_in_photo(boxes, resized_wh, photo.size_wh), scores.cpu().numpy()))
        return proposed


def detections_of(raw: RawDetections, photo: Photo) -> Detections:
    """Keep the best boxes of each category, none of which overlaps a better one too much."""
    cells, categories = np.nonzero(raw.scores > MIN_SCORE)
    scores = raw.scores[cells, categories]

    def keep(indices: NDArray[np.int64]) -> NDArray[np.int64]:
        boxes = raw.boxes_xyxy[cells[indices]]
        return nms_by_category(boxes, categories[indices], NMS_IOU, enough=MAX_PER_CATEGORY)

    order = np.argsort(-scores, kind="stable")
    kept = first_kept(order, keep, enough=MAX_DETECTIONS, candidates=FIRST_CANDIDATES)
    category_ids = np.array(COCO_CATEGORY_IDS, np.int64)[categories[kept]]
    return Detections(raw.boxes_xyxy[cells[kept]], scores[kept], category_ids, photo.size_wh, photo.name)


def best_detections(maps: Sequence[HeadMaps], sizes: Tensor, candidates: int = CANDIDATES) -> Tensor:
    """Return the best boxes of each photo: ``[B, D, 6]`` of x1, y1, x2, y2 in its pixels, score and category.

    The numbers are those of `detections_of`, but the host never waits for a GPU: all shapes are fixed. ``sizes [B, 4]``
    are the width and height of each photo, and those in the network's input. Rows that are left over have the score 0.
    A photo that needs more ``candidates`` or `STEPS` is NaN.
    """
    class_logits, quality_logits, distance_logits = flattened(maps)
    centres, strides = grid(maps)
    in_photo = (centres < sizes[:, None, 2:]).all(-1)  # [B, P]
    best = (class_logits.amax(-1).sigmoid() * quality_logits[..., 0].sigmoid()).sqrt() * in_photo
    # The order of cells, which sorted indices keep, decides between equal scores.
    cells = best.topk(min(CELLS, best.shape[1]), sorted=False).indices.sort().values  # [B, N]
    classes, quality, distance = (_rows_at(logits, cells) for logits in (class_logits, quality_logits, distance_logits))
    scores = (classes.sigmoid() * quality.sigmoid()).sqrt() * in_photo.gather(1, cells).unsqueeze(-1)
    scores = torch.where(scores > MIN_SCORE, scores, 0)
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

    overlaps = batched_overlap_by_more(boxes, NMS_IOU)
    overlaps &= categories.unsqueeze(-1) == categories.unsqueeze(-2)
    kept, is_settled = suppress_in_steps(overlaps, score > 0, STEPS)
    of_category = categories.unsqueeze(-1) == torch.arange(number, device=boxes.device)
    place = (of_category & kept.unsqueeze(-1)).cumsum(1)  # [B, N, C]
    is_full = place[:, -1] >= MAX_PER_CATEGORY
    kept &= place.gather(2, categories.unsqueeze(-1)).squeeze(-1) <= MAX_PER_CATEGORY
    first = (~kept).to(torch.uint8).argsort(dim=1, stable=True)[:, :MAX_DETECTIONS]
    columns = torch.cat((boxes, score.unsqueeze(-1), categories.unsqueeze(-1)), -1)
    rows = _rows_at(columns, first) * kept.gather(1, first).unsqueeze(-1)
    # A candidate that was left out would come after the last row, or its category has enough.
    least = rows[:, -1, 4] if score.shape[1] >= MAX_DETECTIONS else torch.zeros_like(score[:, 0])
    left_out = best.gather(1, cells).amin(1) if cells.shape[1] < best.shape[1] else torch.zeros_like(least)
    is_complete = is_settled & (score[:, -1] <= least) & (left_out <= least.clamp(min=MIN_SCORE))
    is_complete &= (is_full | (last <= least.unsqueeze(1))).all(1)
    return rows.masked_fill(~is_complete[:, None, None], torch.nan)


def _rows_at(values: Tensor, index: Tensor) -> Tensor:
    """Return some rows of each photo: ``[B, P, F]``, ``[B, N]`` to ``[B, N, F]``."""
    return values.gather(1, index.unsqueeze(-1).expand(-1, -1, values.shape[-1]))
