"""From photos to a file of detections, which `tallybox fit` and `tallybox count` read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from tallybox.detections.container import Detections
from tallybox.detections.writers import check_can_be_written, write_detections
from tallybox.errors import InputError
from tallybox.photos.detector import categories_of
from tallybox.photos.reading import detect_each
from tallybox.photos.sources import find_sources
from tallybox.photos.specs import DEFAULT_SPEC, detector_of

Engine = Literal["local", "ray"]


class NamedPhoto(NamedTuple):
    """A photo's file, and the id that its detections are stored under."""

    path: Path
    image_id: str


class DetectionSummary(NamedTuple):
    """What was written."""

    photos: int
    boxes: int


def find_photos(paths: Iterable[str | Path]) -> list[NamedPhoto]:
    """Return the photos that paths, folders and patterns stand for, with their ids, which must differ.

    The id of a photo in a folder is its path from that folder, with slashes; that of a photo named itself is its name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "ripe").mkdir()
    ...     for name in ("ripe/a.jpg", "b.jpg"):
    ...         (Path(folder) / name).touch()
    ...     [photo.image_id for photo in find_photos([folder, Path(folder) / "ripe" / "a.jpg"])]
    ['b.jpg', 'ripe/a.jpg', 'a.jpg']
    """
    photos: dict[str, Path] = {}
    for path, is_photo, folder in find_sources(paths):
        if not is_photo:
            if path.is_dir():  # Parquet files beside the photos, perhaps of an earlier run
                continue
            raise InputError(f"PHOTOS must be photos or folders of them, but got {path}")
        image_id = path.name if folder is None else path.relative_to(folder).as_posix()
        if photos.get(image_id) == path:
            continue
        if image_id in photos:
            raise InputError(
                f"photos must have different ids, but {photos[image_id]} and {path} are both {image_id!r}; "
                "name one folder that holds both"
            )
        photos[image_id] = path
    if not photos:
        raise InputError("PHOTOS must be photos or folders of them, but there is no photo among them")
    return [NamedPhoto(path, image_id) for image_id, path in photos.items()]


def detect_to_file(
    photos: Sequence[NamedPhoto],
    out: Path,
    *,
    spec: str = DEFAULT_SPEC,
    texts: Sequence[str] = (),
    engine: Engine = "local",
    on_failure: Callable[[InputError], None] = lambda error: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> DetectionSummary:
    """Write what a detector finds in photos to a file, which appears when all of them are done.

    A photo that cannot be read is given to ``on_failure``, and the others are written.
    """
    check_can_be_written(out)
    detector = detector_of(spec, texts=texts)
    paths = [photo.path for photo in photos]
    if engine == "ray":
        from tallybox.photos.ray_engine import detect_each_with_ray

        detected = detect_each_with_ray(spec, texts, paths)
    else:
        detected = chain.from_iterable(detect_each(paths, detector))
    written: list[int] = []  # boxes of each photo

    def each() -> Iterator[Detections]:
        for number, (photo, found) in enumerate(zip(photos, detected, strict=True), 1):
            if found.detections is not None:
                written.append(len(found.detections))
                yield replace(found.detections, image_id=photo.image_id)
            elif found.error is not None:
                on_failure(found.error)
            on_progress(number, len(photos))
        if not written:
            raise InputError(f"no photo of {len(photos)} could be read, so that nothing was written to {out}")

    write_detections(each(), out, categories=categories_of(detector))
    return DetectionSummary(len(written), sum(written))
