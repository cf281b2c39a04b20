"""What a detector is: photos in, `Detections` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.container import Detections
from tallybox.errors import InputError
from tallybox.photos.images import Photo


class Detector(Protocol):
    """Anything that detects objects in photos; it should suppress as few boxes as possible.

    A detector of other categories than COCO's names them in an attribute ``categories``, from id to name.
    """

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo: boxes in its pixels, ``image_id`` its name."""
        ...


class RegionProposals(NamedTuple):
    """Regions of one photo with what a detector saw in each: P regions, F features.

    A detector that can tell has a method ``propose_regions(photos)``, which returns a list of these or None.
    """

    boxes_xyxy: NDArray[np.float32]  # [P, 4] pixels of the photo
    scores: NDArray[np.float32]  # [P] of the best category
    features: NDArray[np.floating]  # [P, F]


def device_or_default(device: str | torch.device | None) -> torch.device:
    """Return the named device, by default the GPU where there is one."""
    try:
        return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise InputError(f'device must be "cpu", "cuda" or another of torch\'s, but got {device!r}') from None


def categories_of(detector: Detector) -> Mapping[int, str]:
    """Return the names of a detector's categories, COCO's where it names none."""
    categories = getattr(detector, "categories", COCO_CATEGORIES)
    if not isinstance(categories, Mapping):
        raise InputError(
            f"categories of a detector must map ids to names, but got a {type(categories).__name__}; "
            'write {0: "apple"}, for example'
        )
    ids: dict[str, int] = {}
    for category_id, name in categories.items():
        if name in ids:
            raise InputError(
                "categories of a detector must have different names, "
                f"but {ids[name]} and {category_id} are both {name!r}"
            )
        ids[name] = category_id
    return categories
