"""The embedded detector: PicoDet-S for the 80 categories of COCO, on a CPU or a GPU.

A photo is resized so that its longer side has 640 pixels and padded with grey to multiples of 64. Every cell of four
grids proposes a box with a score for each category. Those above 0.05 go through non-maximum suppression (NMS) within
each category, at a high threshold: what is left out cannot be counted.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
from tallybox.photos.detector import boxes_in_photo, map_same_size
from tallybox.photos.images import BICUBIC, Photo, letterbox
from tallybox.photos.network import BINS, SIDES, STRIDES, CpuNetwork, HeadMaps, load_picodet_network

DEFAULT_SIZE = 640  # AP on 128 photos of COCO: 42.0, against 40.9 at 512 and 38.9 at 768 px
MULTIPLE = STRIDES[-1]  # sides of the network's input are multiples of it
CHANNEL_MEAN, CHANNEL_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of pixels in [0, 1], RGB

# As in the detections that the shipped estimator learned from.
MIN_SCORE = 0.05
NMS_IOU = 0.8  # a box that overlaps a better one of its category by more is left out
MAX_PER_CATEGORY = 60
MAX_DETECTIONS = 200
FIRST_CANDIDATES = 1024  # boxes that go through NMS at first: enough for nearly all photos

BATCHES = {"cpu": 1, "cuda": 32}  # on a CPU two photos take 130 ms together and 51 each alone, because of its cache


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
        self.device = device_or_default(device)
        self.batch = BATCHES.get(self.device.type, 1)
        self.network = CpuNetwork() if self.device.type == "cpu" else load_picodet_network().to(self.device)

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the boxes of each photo, up to 200, a box once for each category that scores above 0.05."""
        return [detections_of(raw, photo) for raw, photo in zip(self.propose(photos), photos, strict=True)]

    def propose(self, photos: Sequence[Photo]) -> list[RawDetections]:
        """Return every cell of each photo that scores above 0.05 in some category."""
        # The network averages over its whole input, so that padding a photo further would change its scores:
        # only photos of the same size go through it together.
        sizes = [_resized_wh(photo.size_wh, self.size) for photo in photos]
        # On one thread: with another program on a core, two threads wait for each other at every layer (2 s, not 0.1).
        return call_single_threaded(lambda: map_same_size(self._propose, photos, sizes, at_once=self.batch))

    @torch.inference_mode()
    def _propose(self, photos: Sequence[Photo]) -> list[RawDetections]:
        """Run the network on photos of one size when resized."""
        resized_wh = width, height = _resized_wh(photos[0].size_wh, self.size)
        input_wh = -(-width // MULTIPLE) * MULTIPLE, -(-height // MULTIPLE) * MULTIPLE
        pixels = np.stack([letterbox(photo.image, resized_wh, input_wh, BICUBIC) for photo in photos])
        mean, deviation = 255 * torch.tensor((CHANNEL_MEAN, CHANNEL_DEVIATION), device=self.device).view(2, 3, 1, 1)
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(self.device).float().sub_(mean).div_(deviation)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # TensorFloat-32 changes scores by 0.001
            maps = self.network(images)
        return [
            RawDetections(boxes_in_photo(boxes.cpu().numpy(), resized_wh, photo.size_wh), scores.cpu().numpy())
            for photo, (boxes, scores) in zip(photos, _cells_above(maps, resized_wh), strict=True)
        ]


def _resized_wh(size_wh: tuple[int, int], longer_side: int) -> tuple[int, int]:
    """Return the width and height of a photo whose longer side is resized, at least one pixel each.

    >>> _resized_wh((640, 480), 640), _resized_wh((333, 500), 640), _resized_wh((10_000, 3), 640)
    ((640, 480), (426, 640), (640, 1))
    """
    scale = longer_side / max(size_wh)
    return max(1, round(size_wh[0] * scale)), max(1, round(size_wh[1] * scale))


def _cells_above(maps: Sequence[HeadMaps], resized_wh: tuple[int, int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each image the boxes ``[P, 4]`` and scores ``[P, C]`` of the cells in the photo above `MIN_SCORE`."""
    class_logits, quality_logits, distance_logits = (
        torch.cat([part.permute(0, 2, 3, 1).flatten(1, 2) for part in parts], 1) for parts in zip(*maps, strict=True)
    )  # each [B, cells, channels]
    centres, strides = _grid(maps)
    in_photo = (centres < torch.tensor(resized_wh, device=centres.device)).all(1)
    best = (class_logits.amax(2).sigmoid() * quality_logits[..., 0].sigmoid()).sqrt()  # [B, cells]
    bins = torch.arange(BINS, device=centres.device, dtype=torch.float32)
    for image, enough in enumerate((best > MIN_SCORE) & in_photo):
        chosen = enough.nonzero().flatten()
        scores = (class_logits[image, chosen].sigmoid() * quality_logits[image, chosen].sigmoid()).sqrt()
        distance = distance_logits[image, chosen].unflatten(1, (SIDES, BINS)).softmax(2) @ bins * strides[chosen]
        yield torch.cat((centres[chosen] - distance[:, :2], centres[chosen] + distance[:, 2:]), 1), scores


def _grid(maps: Sequence[HeadMaps]) -> tuple[Tensor, Tensor]:
    """Return the centre of each cell ``[cells, 2]`` in pixels of the input, and its stride ``[cells, 1]``."""
    centres, strides = [], []
    for stride, (class_logits, _, _) in zip(STRIDES, maps, strict=True):
        sides = (torch.arange(side, device=class_logits.device) for side in reversed(class_logits.shape[2:]))
        cells = torch.stack(torch.meshgrid(*sides, indexing="xy"), -1).reshape(-1, 2)  # x and y of each
        centres.append((cells + 0.5) * stride)
        strides.append(torch.full_like(centres[-1][:, :1], stride))
    return torch.cat(centres), torch.cat(strides)


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
