"""Many photos through a detector: read ahead in threads, detected in batches, a bad file left out with its reason."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from tallybox.detections.container import Detections
from tallybox.errors import InputError
from tallybox.photos.detector import DarknetDetector, Detector
from tallybox.photos.images import Photo, read_photo

BATCH = 8  # photos detected together; larger ones were no faster on two cores and make the first result wait

OnFailure = Callable[[Path, InputError], None]


def detect_in_batches(
    paths: Iterable[Path], detector: Detector, *, on_failure: OnFailure, batch: int = BATCH
) -> Iterator[list[Detections]]:
    """Yield the detections of photos a batch at a time, in order; ``on_failure`` hears of each that cannot be read.

    Decoding runs ahead of the detector by one batch, so memory is bounded whatever the number of photos.
    """
    reduced_to = 2 * detector.size if isinstance(detector, DarknetDetector) else None
    remaining = iter(paths)
    with ThreadPoolExecutor(max_workers=min(batch, os.cpu_count() or 1)) as threads:
        ahead: deque[tuple[Path, Future[Photo]]] = deque()

        def read_ahead(number: int) -> None:
            for path in islice(remaining, number):
                ahead.append((path, threads.submit(read_photo, path, reduced_to=reduced_to)))

        read_ahead(2 * batch)
        while ahead:
            photos = []
            for _ in range(min(batch, len(ahead))):
                path, photo = ahead.popleft()
                try:
                    photos.append(photo.result())
                except InputError as error:
                    on_failure(path, error)
            read_ahead(batch)
            if photos:
                yield detector.detect(photos)
