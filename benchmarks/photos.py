"""Time JPEG files to counts, stage by stage, compared with one photo at a time.

python -m benchmarks.photos [--device cuda] [--photos FOLDER] [--number 256] [--json]

First, the counts of all photos are compared with those on a CPU. A stage that fails is reported, and the others go on.
"""

import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import torch
from benchmarks.command import benchmark_command
from benchmarks.measure import BenchRow, Run, compare
from PIL import Image

from tallybox.concurrency import map_in_order
from tallybox.detections.detections import Detections
from tallybox.errors import TallyboxError
from tallybox.estimator.inference import infer_pairs
from tallybox.estimator.inputs import model_inputs, pairs_of_images
from tallybox.photos.batched import letterbox_on
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.images import Photo, read_photo
from tallybox.photos.picodet import AT_ONCE, PicoDet, best_detections, detections_of
from tallybox.photos.pipeline import PhotoResult, detect_each
from tallybox.photos.shipped import sample_photos
from tallybox.photos.sources import find_photos

PHOTOS = {"cpu": 32, "cuda": 256}
ONE_BY_ONE = 8  # photos that the reference takes
SIZE_WH = (640, 480)
AGREEMENT = 1e-4  # of scores: a batch is summed in another order than a photo alone

Photos = list[Photo]


def bench_photos(
    device: torch.device, seconds: float = 2.0, number: int | None = None, photos: Path | None = None
) -> Iterator[BenchRow]:
    """Yield milliseconds a photo for each stage and for all of them; the reference takes photos one at a time."""
    detector = PicoDet(device=device)
    counter = PhotoCounter(detector)
    number, failures = number or PHOTOS[device.type], []
    with tempfile.TemporaryDirectory() as folder:
        found = [*find_photos([photos]).values()] if photos else made_from_samples(Path(folder), number)
        paths = (found * -(-number // len(found)))[:number]  # a small folder is taken several times
        for name, check in (("detections", check_detections), ("counts", check_counts)):
            try:
                check(counter, paths[: len(found)])
            except Exception as error:
                failures.append(f"{name}: {_summary(error)}")
        for stage, (ours, one_by_one) in _stages(counter, paths).items():
            try:
                scale, some = 1 / number, min(number, ONE_BY_ONE)
                yield compare(stage, ours, one_by_one, device, seconds, scale=scale, reference_scale=1 / some)
            except Exception as error:
                failures.append(f"{stage}: {_summary(error)}")
    if failures:
        raise TallyboxError("; ".join(failures))


def _summary(error: Exception) -> str:
    traceback.print_exception(error)
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _stages(counter: PhotoCounter, paths: Sequence[Path]) -> dict[str, tuple[Run, Run]]:
    """Return what is timed, for all photos and for the first few of them, one at a time."""
    detector, estimator = counter.detector, counter.estimator
    assert isinstance(detector, PicoDet)
    on_gpu = detector.device.type == "cuda"
    photos = [read_photo(path, reduced_to=2 * detector.size) for path in paths]
    few, few_paths = photos[:ONE_BY_ONE], paths[:ONE_BY_ONE]
    detections = PicoDet(device="cpu").detect(photos[:AT_ONCE])
    detections = (detections * -(-len(paths) // len(detections)))[: len(paths)]
    matched = [*estimator.matched(detections)]

    def read(path: Path) -> Photo:
        photo = read_photo(path, reduced_to=2 * detector.size)
        if on_gpu:
            _ = photo.pixels
        return photo

    def infer(images: list[Detections]) -> None:
        pairs = pairs_of_images(images, None)
        inference = infer_pairs(estimator.fitted, images, pairs, estimator.device)
        inference.predictions("population")

    def inputs(images: list[Detections]) -> None:
        model_inputs(images, pairs_of_images(images, None), estimator.fitted.config, estimator.fitted.category_ids)

    def batches(items: list, function: Callable[[list], object], size: int = AT_ONCE) -> Run:
        parts = [items[start : start + size] for start in range(0, len(items), size)]
        return lambda: [function(part) for part in parts]

    stages: dict[str, tuple[Run, Run]] = {
        "read in threads": (lambda: [*map_in_order(read, paths, ahead=detector.batch)], lambda: [*map(read, few_paths)])
    }
    if on_gpu:
        same = [photo for photo in photos if detector._sizes(photo)[1] == detector._sizes(photos[0])[1]]
        same = (same * -(-len(photos) // len(same)))[: len(photos)]
        try:
            stages |= _stages_on_gpu(detector, same, batches)
        except Exception as error:
            _summary(error)
    else:
        raw = detector.propose(few)
        stages["network"] = batches(photos, detector.propose, 1), batches(few, detector.propose, 1)
        nms: Run = lambda: [*map(detections_of, raw, few)]  # noqa: E731
        repeated: Run = lambda: [nms() for _ in range(len(photos) // len(few))]  # noqa: E731
        stages["candidates and NMS"] = repeated, nms
    return stages | {
        "detect": (batches(photos, detector.detect, detector.batch), batches(few, detector.detect, 1)),
        "read and detect": (
            lambda: [*detect_each(paths, detector)],
            lambda: [[*detect_each([p], detector)] for p in few_paths],
        ),
        "estimator's inputs": (batches(matched, inputs), batches(matched[:ONE_BY_ONE], inputs, 1)),
        "inputs and ensemble": (batches(matched, infer), batches(matched[:ONE_BY_ONE], infer, 1)),
        "count": (
            batches(detections, estimator.predict_many),
            batches(detections[:ONE_BY_ONE], estimator.predict_many, 1),
        ),
        "end to end": (lambda: counter.count_many(paths), lambda: [*map(counter.count, few_paths)]),
    }


def _stages_on_gpu(detector: PicoDet, photos: Photos, batches: Callable[..., Run]) -> dict[str, tuple[Run, Run]]:
    """Return the stages of photos of one size of the network's input."""

    @torch.inference_mode()
    def resize(photos: Photos) -> torch.Tensor:
        sizes = [detector._sizes(photo) for photo in photos]
        return letterbox_on(
            detector.device, [photo.pixels for photo in photos], [size for size, _ in sizes], sizes[0][1]
        )

    def inputs(photos: Photos) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = [(*photo.size_wh, *detector._sizes(photo)[0]) for photo in photos]
        return resize(photos), torch.tensor(numbers, dtype=torch.float32, device=detector.device)

    batch, one = inputs(photos[:AT_ONCE]), inputs(photos[:1])
    times = -(-len(photos) // len(batch[0]))
    with torch.inference_mode():
        maps = [detector._maps(canvas) for canvas, _ in (batch, one)]

    def repeated(function: Callable[..., object], given: Sequence[Sequence[object]]) -> tuple[Run, Run]:
        call = torch.inference_mode()(function)
        return (
            lambda: [call(*given[0]) for _ in range(times)],
            lambda: [call(*given[1]) for _ in range(ONE_BY_ONE)],
        )

    return {
        "to the GPU, resized": (batches(photos, resize), batches(photos[:ONE_BY_ONE], resize, 1)),
        "network": repeated(detector._maps, [batch[:1], one[:1]]),
        "candidates and NMS": repeated(best_detections, [(maps[0], batch[1]), (maps[1], one[1])]),
        "network, candidates and NMS, kernel by kernel": repeated(detector._scan, [batch, one]),
        "network, candidates and NMS, as a graph": repeated(detector._run, [batch, one]),
    }


def made_from_samples(folder: Path, number: int) -> list[Path]:
    """Write photos of a common size, each a different crop of a sample photo."""
    originals = [read_photo(path).image for path in sample_photos()]
    paths = []
    for index in range(number):
        photo = originals[index % len(originals)]
        shift = index // len(originals)
        crop = photo.resize(SIZE_WH, Image.Resampling.BICUBIC, (shift, shift, photo.width, photo.height))
        paths.append(folder / f"{index:03}.jpg")
        crop.save(paths[-1], quality=90)
    return paths


def check_detections(counter: PhotoCounter, paths: Sequence[Path]) -> None:
    """Raise unless photos get the same scores in batches as alone on a CPU."""
    worst, differing = 0.0, []
    on_cpu = detect_each(paths, PicoDet(device="cpu"))
    for found, expected in zip(detect_each(paths, counter.detector), on_cpu, strict=True):
        scores, others = (np.sort(photo.detections.scores) for photo in (found, expected))
        if len(scores) != len(others):
            differing.append(found.name)
        else:
            worst = max(worst, float(np.abs(scores - others).max(initial=0)))
    click.echo(f"scores differ by at most {worst:.1e}, the numbers of boxes in {differing or 'no photo'}", err=True)
    if worst > AGREEMENT or len(differing) > len(paths) // 50:  # at the threshold, a box may go or come
        raise TallyboxError(f"detections differ from those on a CPU, scores by {worst:.1e}")


def check_counts(counter: PhotoCounter, paths: Sequence[Path]) -> None:
    """Raise unless photos get the same counts as on a CPU; print what takes how long, end to end."""
    counter.count_many(paths)  # graphs are captured, kernels compiled
    times = []
    for _ in range(3):
        start = time.perf_counter()
        found = counter.count_many(paths)
        times.append((time.perf_counter() - start) * 1e3 / len(paths))
    click.echo(f"end to end: {statistics.median(times):.2f} ms a photo", err=True)
    expected = PhotoCounter("picodet", device="cpu").count_many(paths)
    differing = [one.name for one, other in zip(found, expected, strict=True) if _numbers(one) != _numbers(other)]
    click.echo(f"{len(paths)} photos: counts differ in {differing or 'no photo'}", err=True)
    if differing:
        raise TallyboxError(f"counts of {len(differing)} photos differ from those on a CPU")


def _numbers(result: PhotoResult) -> dict[str, int]:
    return {name: prediction.count for name, prediction in result.counts.items()}


OPTIONS = (
    click.Option(
        ["--photos"], type=click.Path(path_type=Path, exists=True), help="A folder.  [default: synthetic ones]"
    ),
    click.Option(["--number"], type=int, help="How many photos.  [default: 256 on a GPU, 32 on a CPU]"),
)

if __name__ == "__main__":
    benchmark_command(bench_photos, *OPTIONS)()
