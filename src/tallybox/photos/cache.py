"""Detections of photos in a folder: an interrupted run resumes, and no photo is detected twice.

The folder holds Parquet files of some photos each. A photo is detected again if its size, its time or a setting of the
run, such as the detector, has changed.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, time_ns
from typing import Any, Literal

from tallybox.detections.detections import Detections
from tallybox.detections.readers import read_detections, read_parquet_metadata
from tallybox.detections.writers import check_can_be_written, write_detections, write_parquet
from tallybox.errors import InputError
from tallybox.files import import_optional
from tallybox.photos.detector import DEFAULT_SPEC, Detector, categories_of, detector_of
from tallybox.photos.pipeline import OnFailure, OnProgress, PhotoResult, Tiling, detect_each

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
    settings = json.loads(json.dumps(settings))
    states = {image_id: file_state(path) for image_id, path in photos.items()}
    kept = _read(folder, settings, states)
    detected = detect([path for image_id, path in photos.items() if image_id not in kept])
    images: list[Detections] = []
    tilings: dict[str, Tiling] = {}

    def write() -> None:
        if images:
            of_photos = {"photos": {str(image.image_id): states[str(image.image_id)] for image in images}}
            metadata = {METADATA_KEY: json.dumps({**settings, **of_photos, "tiling": tilings})}
            path = folder / f"{time_ns()}.parquet"
            write_parquet(images, path, categories=images[0].category_names, metadata=metadata)
        images.clear()
        tilings.clear()

    last = monotonic()
    try:
        for image_id, path in photos.items():
            if image_id in kept:
                yield replace(kept.pop(image_id), source=path)
                continue
            result = next(detected)
            if result.detections is not None:
                images.append(replace(result.detections, image_id=image_id))
            if result.tiling is not None:
                tilings[image_id] = result.tiling
            if len(images) == MAX_PHOTOS or monotonic() - last > MAX_SECONDS:
                write()
                last = monotonic()
            yield result
    finally:
        write()


def _read(folder: Path, settings: Mapping[str, Any], states: Mapping[str, Any]) -> dict[str, PhotoResult]:
    """Return the detections in the folder of photos that have not changed since."""
    kept: dict[str, PhotoResult] = {}
    for part in sorted(folder.glob("*.parquet")):
        stored = read_parquet_metadata(part, METADATA_KEY)
        if any(stored.get(key) != value for key, value in settings.items()):
            continue
        for image in read_detections(part):
            image_id = str(image.image_id)
            if image_id in states and stored.get("photos", {}).get(image_id) == states[image_id]:
                tiling = stored.get("tiling", {}).get(image_id)
                kept[image_id] = PhotoResult(None, image, tiling=None if tiling is None else Tiling(*tiling))
    return kept


def detect_to_file(
    photos: Mapping[str, Path], out: Path, *, spec: str = DEFAULT_SPEC, texts: Sequence[str] = (), **options: Any
) -> list[Detections]:
    """Write the detections of photos, by their ids, to a file, which appears when all of them are done.

    The same call resumes after an interruption. ``options`` are those of `cached_detections`.
    """
    check_can_be_written(out)
    folder, detector = unfinished_folder(out), detector_of(spec, texts=texts)
    images = cached_detections(photos, folder, detector, (spec, *texts), **options)
    write_detections(images, out, categories=categories_of(detector))
    shutil.rmtree(folder)
    return images


def cached_detections(
    photos: Mapping[str, Path],
    folder: Path,
    detector: Detector,
    described: Sequence[str],
    *,
    engine: Engine = "local",
    on_failure: OnFailure = lambda error: None,
    on_progress: OnProgress = lambda done, total: None,
) -> list[Detections]:
    """Return a detector's detections in photos, under the photos' ids; ``described`` is its SPEC with its phrases.

    They come from the folder. Photos that are not in it yet are detected and added. A photo that cannot be read is
    given to ``on_failure`` and left out.
    """
    spec, *texts = described
    names, file = categories_of(detector), spec.partition(":")[2]
    settings = {"detector": described, "model": file_state(Path(file)) if file else None}
    detect: Callable[[list[Path]], Iterator[PhotoResult]] = partial(detect_each, detector=detector)
    if engine == "ray":
        from tallybox.photos.distributed import detect_each_with_ray

        detect = partial(detect_each_with_ray, spec, texts)
    images: list[Detections] = []
    results = zip(photos, resumed(photos, folder, settings, detect), strict=True)
    for done, (image_id, photo) in enumerate(results, start=1):
        if photo.detections is not None:
            images.append(replace(photo.detections, image_id=image_id, category_names=names))
        elif photo.error is not None:
            on_failure(photo.error)
        on_progress(done, len(photos))
    if not images:
        raise InputError(f"None of {len(photos)} photos can be read")
    return images


def file_state(path: Path) -> list[list[Any]]:
    """Return the name, the size and the time of a file, or of each file in a folder; nothing if there is none."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files if file.is_file()]
