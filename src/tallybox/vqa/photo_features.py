"""`tallybox vqa features`: regions and features of one's own photos, in files that `tallybox vqa prepare` reads."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallybox.concurrency import in_batches
from tallybox.errors import InputError
from tallybox.photos.features import RegionFeatures, region_features
from tallybox.photos.images import Photo
from tallybox.photos.picodet import PicoDet
from tallybox.photos.pipeline import OnFailure, OnProgress, map_photos
from tallybox.runs import open_run
from tallybox.vqa.data.feature_files import find_feature_files, write_features
from tallybox.vqa.data.features import PhotoFeatures
from tallybox.vqa.data.photo_ids import photo_id

PHOTOS_IN_FILE = 256


class FeatureSummary(NamedTuple):
    """What a folder of features holds."""

    photos: int
    regions: int  # written this time
    features: int | None  # of each region; None where nothing was written this time


def write_photo_features(
    photos: Mapping[str, Path],
    out: Path,
    *,
    on_failure: OnFailure = lambda error: None,
    on_progress: OnProgress = lambda done, total: None,
) -> FeatureSummary:
    """Write regions of photos, by their ids, with PicoDet's scores as features to files of 256 photos in a folder.

    The same call goes on after an interruption, or with more photos. A photo that cannot be read is given to
    ``on_failure``, and the others are written.
    """
    open_run(out, {"detector": "picodet"})
    names: dict[str, Path] = {}
    for name, path in photos.items():
        if (earlier := names.setdefault(photo_id(name), path)) is not path:
            raise InputError(
                f"photos must have different ids, but {earlier} and {path} are both {photo_id(name)!r}; rename one"
            )
    files = find_feature_files(out) if list(out.glob("*.safetensors")) else []
    done = {image_id for file in files for image_id in file.image_ids()}
    remaining = [name for name in names if name not in done]
    regions, width = 0, None

    def described() -> Iterator[PhotoFeatures]:
        detector = PicoDet()

        def describe(batch: Sequence[Photo]) -> list[PhotoFeatures]:
            regions = region_features(detector, batch)
            return [
                PhotoFeatures(str(photo.name), photo.size_wh, *_regions_or_whole(found))
                for photo, found in zip(batch, regions, strict=True)
            ]

        results = map_photos(describe, (names[name] for name in remaining), detector)
        first = 1 + len(names) - len(remaining)
        for number, (name, (_, photo)) in enumerate(zip(remaining, results, strict=True), first):
            on_progress(number, len(names))
            if isinstance(photo, InputError):
                on_failure(photo)
            else:
                yield photo._replace(image_id=name)

    for number, batch in enumerate(in_batches(described() if remaining else (), PHOTOS_IN_FILE), len(files)):
        write_features(out / f"{number:06}.safetensors", batch)
        done |= {photo.image_id for photo in batch}
        regions, width = regions + sum(len(photo.features) for photo in batch), batch[0].features.shape[1]
    if not done:
        raise InputError(f"no photo of {len(names)} could be read, so that nothing was written to {out}")
    return FeatureSummary(len(done), regions, width)


def _regions_or_whole(found: RegionFeatures) -> tuple[NDArray[np.float32], NDArray[np.float16]]:
    """Return boxes and features; a photo without regions has one, the whole photo, with features of 0."""
    if len(found.scores):
        return found.boxes_xyxy, found.scores
    return np.array([[0, 0, *found.size_wh]], np.float32), np.zeros((1, found.scores.shape[1]), np.float16)
