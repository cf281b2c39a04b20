"""Time JPEG files to counts, stage by stage, compared with one photo at a time.

python -m benchmarks.photos [--device cuda] [--json]
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from benchmarks.command import benchmark_command
from benchmarks.measure import BenchRow, Run, compare
from PIL import Image

from tallybox.errors import TallyboxError
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.images import Photo, read_photo
from tallybox.photos.picodet import PicoDet
from tallybox.photos.pipeline import BATCH, detect_each
from tallybox.photos.shipped import sample_photos

PHOTOS = 32
SIZE_WH = (640, 480)
AGREEMENT = 1e-3  # of scores: a batch is summed in another order than a photo alone


def bench_photos(device: torch.device, seconds: float = 2.0, number: int = PHOTOS) -> Iterator[BenchRow]:
    """Yield milliseconds a photo for each stage and for all of them; the reference takes photos one at a time."""
    detector = PicoDet(device=device)
    counter = PhotoCounter(detector)
    with tempfile.TemporaryDirectory() as folder:
        paths = made_from_samples(Path(folder), number)
        photos = [read_photo(path) for path in paths]
        check_batch(detector, photos[:BATCH])
        detections, estimator = detector.detect(photos), counter.estimator
        # Each stage for all photos at once, and one by one.
        stages: dict[str, tuple[Run, Run]] = {
            "read": (lambda: [*map(read_photo, paths)],) * 2,  # in one thread; end to end it runs ahead in several
            "read and detect": (
                lambda: [*detect_each(paths, detector)],
                lambda: [detector.detect([p]) for p in photos],
            ),
            "count": (lambda: estimator.predict_many(detections), lambda: [*map(estimator.predict, detections)]),
            "end to end": (lambda: counter.count_many(paths), lambda: [*map(counter.count, paths)]),
        }
        width, height = SIZE_WH
        for stage, (ours, one_by_one) in stages.items():
            case = f"{stage}, a photo of {width} x {height} at {detector.size} px"
            per_photo = 1 / len(paths)
            yield compare(case, ours, one_by_one, device, seconds, scale=per_photo, reference_scale=per_photo)


def made_from_samples(folder: Path, number: int) -> list[Path]:
    """Write photos of a common size, each a different crop of a sample photo."""
    originals = [read_photo(path).image for path in sample_photos()]
    paths = []
    for index in range(number):
        photo = originals[index % len(originals)]
        shift = 8 * (index // len(originals))
        crop = photo.resize(SIZE_WH, Image.Resampling.BICUBIC, (shift, shift, photo.width, photo.height))
        paths.append(folder / f"{index:03}.jpg")
        crop.save(paths[-1], quality=90)
    return paths


def check_batch(detector: PicoDet, photos: Sequence[Photo]) -> None:
    """Raise unless a photo gets the same scores alone and in a batch."""
    for photo, together in zip(photos, detector.detect(photos), strict=True):
        alone = detector.detect([photo])[0]
        if len(alone) != len(together) or not np.allclose(alone.scores, together.scores, rtol=0, atol=AGREEMENT):
            raise TallyboxError(
                f"a photo must get the same scores alone and in a batch before that is timed, but {photo.name} does not"
            )


if __name__ == "__main__":
    benchmark_command(bench_photos)()
