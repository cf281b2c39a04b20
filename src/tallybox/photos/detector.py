"""What a detector is: photos in, `Detections` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.container import Detections
from tallybox.errors import InputError
from tallybox.photos.images import Photo


class Detector(Protocol):
    """Anything that finds objects in photos, with every box it can think of: as little as possible suppressed.

    A detector of other categories than COCO's names them in an attribute ``categories``, from id to name.
    """

    def detect(self, photos: Sequence[Photo]) -> list[Detections]:
        """Return the detections of each photo: boxes in its pixels, ``image_id`` its name."""
        ...


def device_or_default(device: str | torch.device | None) -> torch.device:
    """Return the device asked for, by default the GPU where there is one."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def categories_of(detector: Detector) -> Mapping[int, str]:
    """Return the names of a detector's categories, COCO's where it names none."""
    return getattr(detector, "categories", COCO_CATEGORIES)


def check_fitted_to(categories: Mapping[int, str], detector: Detector) -> None:
    """Raise where an estimator's categories have other names than those of the detector that it is used with.

    Phrases in another order, say, or another model: counts would be given to the wrong names.
    """
    for category_id, name in categories_of(detector).items():
        learned = categories.get(category_id, name)
        if learned.casefold() != name.casefold():
            raise InputError(
                f"the estimator must be fitted to this detector, but category {category_id} is {learned!r} there and "
                f"{name!r} here; give --detector and --text, in the same order, as for 'tallybox detect'"
            )
