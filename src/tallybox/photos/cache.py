"""Detections of photos in a folder: an interrupted run resumes, and no photo is detected twice.

The folder holds Parquet files of some photos each. A photo is detected again if its size, its time or a setting of the
run, such as the detector, has changed.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from tallybox.detections.detections import Detections
from tallybox.detections.writers import check_can_be_written, write_detections
from tallybox.errors import InputError
from tallybox.files import import_optional
from tallybox.photos.detector import categories_of
from tallybox.photos.pipeline import OnFailure, OnProgress, PhotoResult, detect_each
from tallybox.photos.specs import DEFAULT_SPEC, detector_of
from tallybox.photos.tiles import Tiling

MAX_PHOTOS, MAX_SECONDS = 32, 10.0  # of a file: at most so much is done again after a kill
METADATA_KEY = b"tallybox.photos"

Engine = Literal["local", "ray"]


def unfinished_folder(out: Path) -> Path:
    """Return the folder beside an output that keeps detections until the output is complete."""
    return out.with_name(f"{out.name}.unfinished")


def resumed(
    photos: Mapping[str, Path],
    folder: Path,
    settings: Mapping[str, Any],
    detect: Callable[[list[Path]], Iterator[PhotoResult]],
) -> Iterator[PhotoResult]:
    """Yield the results of photos, which are given by their ids, in order.

    Results of an earlier run with the same ``settings`` come from the folder, as detections without counts. ``detect``
    gives those of the other photos, in order, and they are added to the folder.
    """
    import_optional("pyarrow", needed_for="keeping detections", install="'tallybox[detections]'")
    from tallybox.detections.writers import write_parquet

    settings = json.loads(json.dumps(settings))
    states = {image_id: file_state(path) for image_id, path in photos.items()}
    kept = _read(folder, settings, states)
    detected = detect([path for image_id, path in photos.items() if image_id not in kept])
    names = (folder / f"{number:05}.parquet" for number in count(1))
    new: dict[str, PhotoResult] = {}

    def write() -> None:
        images = [replace(photo.detections, image_id=key) for key, photo in new.items() if photo.detections is not None]
        if images:
            tiling = {key: photo.tiling for key, photo in new.items() if photo.tiling is not None}
            stored = {**settings, "photos": {image.image_id: states[str(image.image_id)] for image in images}}
            path = next(name for name in names if not name.exists())
            metadata = {METADATA_KEY: json.dumps({**stored, "tiling": tiling})}
            write_parquet(images, path, categories=images[0].category_names, metadata=metadata)
        new.clear()

    last = monotonic()
    try:
        for image_id, path in photos.items():
            if image_id in kept:
                image, tiling = kept.pop(image_id)
                yield PhotoResult(path, image, tiling=tiling)
                continue
            result = next(detected)
            new[image_id] = replace(result, photo=None, predictions=None)
            if len(new) == MAX_PHOTOS or monotonic() - last > MAX_SECONDS:
                write()
                last = monotonic()
            yield result
    finally:
        write()


def _read(
    folder: Path, settings: Mapping[str, Any], states: Mapping[str, Any]
) -> dict[str, tuple[Detections, Tiling | None]]:
    """Return the detections in the folder of photos that have not changed since."""
    from tallybox.detections.readers import read_detections, read_parquet_metadata

    kept: dict[str, tuple[Detections, Tiling | None]] = {}
    for part in sorted(folder.glob("*.parquet")):
        stored = read_parquet_metadata(part, METADATA_KEY)
        if any(stored.get(key) != value for key, value in settings.items()):
            continue
        for image in read_detections(part):
            image_id = str(image.image_id)
            if image_id in states and stored.get("photos", {}).get(image_id) == states[image_id]:
                tiling = stored.get("tiling", {}).get(image_id)
                kept[image_id] = replace(image, image_id=image_id), None if tiling is None else Tiling(*tiling)
    return kept


def detect_to_file(photos: Mapping[str, Path], out: Path, **options: Any) -> list[Detections]:
    """Write the detections of photos, by their ids, to a file, which appears when all of them are done.

    The same call resumes after an interruption. ``options`` are those of `cached_detections`.
    """
    check_can_be_written(out)
    folder = unfinished_folder(out)
    names, images = cached_detections(photos, folder, **options)
    write_detections(images, out, categories=names)
    shutil.rmtree(folder)
    return images


def cached_detections(
    photos: Mapping[str, Path],
    folder: Path,
    *,
    spec: str = DEFAULT_SPEC,
    texts: Sequence[str] = (),
    engine: Engine = "local",
    check: Callable[[Mapping[int, str]], None] = lambda categories: None,
    on_failure: OnFailure = lambda error: None,
    on_progress: OnProgress = lambda done, total: None,
) -> tuple[Mapping[int, str], list[Detections]]:
    """Return the names of a detector's categories and its detections in photos, under the photos' ids.

    They come from the folder. Photos that are not in it yet are detected and added. Before that, ``check`` gets the
    names and may raise. A photo that cannot be read is given to ``on_failure`` and left out.
    """

    def detect(paths: list[Path]) -> Iterator[PhotoResult]:
        detector = detector_of(spec, texts=texts)
        names = categories_of(detector)
        check(names)
        if engine == "ray":
            from tallybox.photos.distributed import detect_each_with_ray

            detected = detect_each_with_ray(spec, texts, paths)
        else:
            detected = detect_each(paths, detector)
        for photo in detected:
            image = photo.detections
            yield photo if image is None else replace(photo, detections=image.renumbered({}, names))

    settings = {"detector": [spec, *texts], "model": file_state(Path(spec.partition(":")[2]))}
    images: list[Detections] = []
    results = zip(photos, resumed(photos, folder, settings, detect), strict=True)
    for done, (image_id, photo) in enumerate(results, start=1):
        if photo.detections is not None:
            images.append(replace(photo.detections, image_id=image_id))
        elif photo.error is not None:
            on_failure(photo.error)
        on_progress(done, len(photos))
    if not images:
        raise InputError(f"None of {len(photos)} photos can be read")
    return images[0].category_names or {}, images


def file_state(path: Path) -> list[Any] | None:
    """Return the size and the time of a file, or of the files in a folder; None if there is none."""
    try:
        if path.is_dir():
            return [[file.name, *(file_state(file) or [])] for file in sorted(path.iterdir()) if file.is_file()]
        state = path.stat()
    except (OSError, ValueError):
        return None
    return [state.st_size, state.st_mtime_ns]
