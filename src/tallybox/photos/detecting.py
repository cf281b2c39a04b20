"""From photos to a file of detections, which `tallybox fit` and `tallybox count` read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from tallybox.detections.container import Detections
from tallybox.detections.writers import check_can_be_written, write_detections
from tallybox.errors import InputError
from tallybox.photos.detector import categories_of
from tallybox.photos.pipeline import detect_each
from tallybox.photos.specs import DEFAULT_SPEC, detector_of


class DetectionSummary(NamedTuple):
    """What was written."""

    photos: int
    boxes: int


def detect_to_file(
    photos: Mapping[str, Path],
    out: Path,
    *,
    spec: str = DEFAULT_SPEC,
    texts: Sequence[str] = (),
    engine: Literal["local", "ray"] = "local",
    on_failure: Callable[[InputError], None] = lambda error: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> DetectionSummary:
    """Write what a detector finds in photos, by their ids, to a file, which appears when all of them are done.

    A photo that cannot be read is given to ``on_failure``, and the others are written.
    """
    check_can_be_written(out)
    if engine == "ray":
        from tallybox.photos.ray_engine import detect_each_with_ray

        categories, detected = detect_each_with_ray(spec, texts, list(photos.values()))
    else:
        detector = detector_of(spec, texts=texts)
        categories, detected = categories_of(detector), detect_each(photos.values(), detector)
    boxes: list[int] = []  # of each photo that was read

    def each() -> Iterator[Detections]:
        for number, (image_id, found) in enumerate(zip(photos, detected, strict=True), 1):
            if found.detections is not None:
                boxes.append(len(found.detections))
                yield replace(found.detections, image_id=image_id)
            elif found.error is not None:
                on_failure(found.error)
            on_progress(number, len(photos))
        if not boxes:
            raise InputError(f"no photo of {len(photos)} could be read, so that nothing was written to {out}")

    write_detections(each(), out, categories=categories)
    return DetectionSummary(len(boxes), sum(boxes))
