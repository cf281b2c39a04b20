"""`tallybox vqa features`: regions and features of one's own photos, in files that `tallybox vqa prepare` reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tallybox.errors import InputError
from tallybox.kernels.threads import map_in_order
from tallybox.photos.detector import Detector
from tallybox.photos.features import describe_regions
from tallybox.photos.images import Photo, read_photo
from tallybox.photos.picodet import PicoDet
from tallybox.photos.pipeline import BATCH, BATCH_ON_CPU, in_batches
from tallybox.photos.specs import DEFAULT_SPEC, detector_of
from tallybox.runs import RunFolder
from tallybox.vqa.data.feature_files import find_feature_files, write_features
from tallybox.vqa.data.features import PhotoFeatures
from tallybox.vqa.data.photo_ids import photo_id

PHOTOS_IN_FILE = 256

OnFailure = Callable[[InputError], None]


class FeatureSummary(NamedTuple):
    """What a folder of features holds."""

    photos: int
    regions: int  # written this time
    features: int | None  # of each region; None where nothing was written this time


def write_photo_features(
    photos: Mapping[str, Path],
    out: Path,
    *,
    spec: str = DEFAULT_SPEC,
    texts: Sequence[str] = (),
    on_failure: OnFailure = lambda error: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> FeatureSummary:
    """Write regions of photos, by their ids, with a detector's features to files of 256 photos in a folder.

    The same call goes on after an interruption, or with more photos. A photo that cannot be read is given to
    ``on_failure``, and the others are written.
    """
    RunFolder(out, {"detector": spec, "texts": list(texts)})
    names = {photo_id(name): path for name, path in photos.items()}
    if len(names) < len(photos):
        raise InputError("photos must have different ids, but some have the same number; put them into other folders")
    known = find_feature_files(out) if list(out.glob("*.safetensors")) else []
    done = {image_id for file in known for image_id in file.image_ids()}
    remaining = [name for name in names if name not in done]
    before = len(names) - len(remaining)
    regions, width = 0, None
    described: Iterator[PhotoFeatures] = iter(())
    if remaining:
        detector = detector_of(spec, texts=texts)
        described = _each(
            remaining, names, detector, on_failure, lambda number: on_progress(before + number, len(names))
        )
    for number, some in enumerate(in_batches(described, PHOTOS_IN_FILE), len(known)):
        write_features(out / f"{number:06}.safetensors", some)
        done |= {photo.image_id for photo in some}
        regions, width = regions + sum(len(photo.features) for photo in some), some[0].features.shape[1]
    if not done:
        raise InputError(f"no photo of {len(names)} could be read, so that nothing was written to {out}")
    return FeatureSummary(len(done), regions, width)


def _each(
    names: Sequence[str],
    paths: Mapping[str, Path],
    detector: Detector,
    on_failure: OnFailure,
    on_photo: Callable[[int], None],
) -> Iterator[PhotoFeatures]:
    """Yield the photos that can be read, in order; PicoDet describes some on each thread."""
    describe = partial(_describe_batch, paths=paths, detector=detector)
    if isinstance(detector, PicoDet):
        describe = partial(describe, reduced_to=2 * detector.size)
    if isinstance(detector, PicoDet) and detector.device.type == "cpu":
        found = map_in_order(describe, in_batches(names, BATCH_ON_CPU))
    else:
        found = map(describe, in_batches(names, BATCH))
    for number, one in enumerate(chain.from_iterable(found), 1):
        on_photo(number)
        if isinstance(one, InputError):
            on_failure(one)
        else:
            yield one


def _describe_batch(
    names: Sequence[str], paths: Mapping[str, Path], detector: Detector, reduced_to: int | None = None
) -> list[PhotoFeatures | InputError]:
    """Describe photos together, or each alone where that fails."""
    read: dict[str, Photo] = {}
    found: dict[str, PhotoFeatures | InputError] = {}
    for name in names:
        try:
            read[name] = read_photo(paths[name], reduced_to=reduced_to)
        except InputError as error:
            found[name] = error
    try:
        for (name, photo), one in zip(read.items(), describe_regions(detector, list(read.values())), strict=True):
            found[name] = PhotoFeatures(name, photo.size_wh, one.boxes_xyxy, one.features)
    except InputError as error:
        if len(names) == 1:
            return [error]
        return [one for name in names for one in _describe_batch([name], paths, detector, reduced_to)]
    return [found[name] for name in names]
