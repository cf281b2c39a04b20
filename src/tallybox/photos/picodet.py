"""The embedded detector: PicoDet-S for the 80 categories of COCO, on a CPU or a GPU.

A photo is resized so that its longer side has 640 pixels and padded with grey to multiples of 64. Every cell of four
grids proposes a box with a score for each category. Those above 0.05 go through non-maximum suppression (NMS) within
each category, at a high threshold: what is left out cannot be counted.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tallybox.boxes import first_kept, nms_by_category
from tallybox.concurrency import call_single_threaded
from tallybox.detections.categories import COCO_CATEGORY_IDS
from tallybox.detections.detections import Detections
from tallybox.devices import device_or_default
from tallybox.errors import InputError
from tallybox.photos.batched import Graphed, best_detections, boxes_of_cells, flattened, grid, letterbox_on
from tallybox.photos.images import BICUBIC, Photo, boxes_in_photo, letterbox, map_same_size
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
        return self._best(self._maps(canvas), sizes)

    def _best(self, maps: Sequence[HeadMaps], sizes: Tensor) -> Tensor:
        limits = {"per_category": MAX_PER_CATEGORY, "detections": MAX_DETECTIONS}
        return best_detections(maps, sizes, min_score=MIN_SCORE, nms_iou=NMS_IOU, **limits)

    def _maps(self, canvas: Tensor) -> list[HeadMaps]:
        images = canvas.permute(0, 3, 1, 2).float().sub_(self._mean).div_(self._deviation)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # TensorFloat-32 changes scores by 0.001
            maps: list[HeadMaps] = self.network(images)
        return maps

    def _sizes(self, photo: Photo) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the sizes of a resized photo, at least a pixel each, and of the network's input."""
        scale = self.size / max(photo.size_wh)
        width, height = (max(1, round(side * scale)) for side in photo.size_wh)
        return (width, height), (-(-width // MULTIPLE) * MULTIPLE, -(-height // MULTIPLE) * MULTIPLE)

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
    kept = first_kept(
        np.argsort(-scores, kind="stable"),
        lambda indices: nms_by_category(
            raw.boxes_xyxy[cells[indices]], categories[indices], NMS_IOU, enough=MAX_PER_CATEGORY
        ),
        enough=MAX_DETECTIONS,
        candidates=FIRST_CANDIDATES,
    )
    category_ids = np.array(COCO_CATEGORY_IDS, np.int64)[categories[kept]]
    return Detections(raw.boxes_xyxy[cells[kept]], scores[kept], category_ids, photo.size_wh, photo.name)
