"""Regions of photos for visual question answering, in the manner of bottom-up attention.

The features of a region are the scores that PicoDet gives the 80 categories, and it is chosen regardless of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallybox.boxes import first_kept, nms
from tallybox.concurrency import in_batches
from tallybox.errors import InputError
from tallybox.photos.images import Photo
from tallybox.photos.picodet import PicoDet, RawDetections
from tallybox.photos.pipeline import OnFailure, OnProgress, map_photos
from tallybox.vqa.data.store import FeatureStore, PhotoFeatures, photo_id, write_features

SAME_REGION_IOU = 0.7
MAX_REGIONS = 36
MIN_BEST_SCORE = 0.05  # of a region
MIN_CATEGORY_SCORE = 0.01  # below it a score is 0
FIRST_CANDIDATES = 256  # boxes that suppression begins with
PHOTOS_IN_FILE = 256


def regions_of(raw: RawDetections, photo: Photo) -> PhotoFeatures:
    """Choose regions among everything that the detector proposes in a photo, the best first; there may be none."""
    kept = choose_regions(raw.boxes_xyxy, raw.scores.max(1, initial=0))
    scores = np.where(raw.scores[kept] < MIN_CATEGORY_SCORE, 0, raw.scores[kept]).astype(np.float16)
    return PhotoFeatures(str(photo.name), photo.size_wh, raw.boxes_xyxy[kept], scores)


def choose_regions(boxes_xyxy: NDArray[np.float32], best_scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return which boxes ``[P, 4]`` with scores ``[P]`` become regions, the best first."""
    order = np.argsort(-best_scores, kind="stable")
    return first_kept(
        order[best_scores[order] > MIN_BEST_SCORE],
        lambda indices: nms(boxes_xyxy[indices], best_scores[indices], [SAME_REGION_IOU])[0],
        enough=MAX_REGIONS,
        candidates=FIRST_CANDIDATES,
    )


def photo_features(detector: PicoDet, photos: Sequence[Photo]) -> list[PhotoFeatures]:
    """Return each photo's regions; a photo without any has one, the whole photo, with features of 0."""
    found = []
    for raw, photo in zip(detector.propose(photos), photos, strict=True):
        regions = regions_of(raw, photo)
        if not len(regions.features):
            whole = np.array([[0, 0, *photo.size_wh]], np.float32)
            regions = regions._replace(boxes_xyxy=whole, features=np.zeros((1, raw.scores.shape[1]), np.float16))
        found.append(regions)
    return found


def write_photo_features(
    photos: Mapping[str, Path],
    out: Path,
    *,
    detector: PicoDet | None = None,
    photos_in_file: int = PHOTOS_IN_FILE,
    on_failure: OnFailure = lambda error: None,
    on_progress: OnProgress = lambda done, total: None,
) -> int:
    """Write the regions of photos, by their ids, to files in the plain layout; return the number of photos there.

    The same call goes on after an interruption, or with more photos. A photo that cannot be read is given to
    ``on_failure``, and the others are written.
    """
    names: dict[str, Path] = {}
    for name, path in photos.items():
        if (earlier := names.setdefault(photo_id(name), path)) is not path:
            raise InputError(f"{earlier} and {path} have the same id {photo_id(name)!r}; rename one")
    files = sorted(out.glob("*.safetensors"))
    there = set(FeatureStore.of(files).image_ids if files else ())
    remaining = [name for name in names if name not in there]

    def described() -> Iterator[PhotoFeatures]:
        used = detector or PicoDet()
        results = map_photos(lambda batch: photo_features(used, batch), (names[name] for name in remaining), used)
        done = len(names) - len(remaining)
        for number, (name, (_, photo)) in enumerate(zip(remaining, results, strict=True), done + 1):
            on_progress(number, len(names))
            if isinstance(photo, InputError):
                on_failure(photo)
            else:
                yield photo._replace(image_id=name)

    for number, batch in enumerate(in_batches(described() if remaining else (), photos_in_file), len(files)):
        write_features(out / f"{number:06}.safetensors", batch)
        there |= {photo.image_id for photo in batch}
    if not there:
        raise InputError(f"None of the {len(names)} photos could be read.")
    return len(there)
