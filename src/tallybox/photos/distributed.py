"""Detect and count in photos on many machines, with Ray Data.

Each worker process makes its detector once, on a GPU if the cluster has one, and takes batches of photos. All machines
must see the photos under the same paths. Ray Data keeps the order, and gives the photos of a lost worker to another.
"""

import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir, nullcontext
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tallybox.errors import TallyboxError
from tallybox.estimator.estimator import Categories
from tallybox.files import error_summary, import_optional, wrap_errors
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.detector import detector_of
from tallybox.photos.pipeline import PhotoResult, detect_each

MAX_PHOTOS_PER_BATCH = 64  # four seconds on a core, done again if a worker is lost
BATCHES_PER_WORKER = 4  # at least, so that all workers have work until the end
WORKERS_PER_GPU = 4  # one prepares photos while another detects

Process = Callable[[Iterable[Path]], Iterator[PhotoResult]]


def count_each_with_ray(
    counter: PhotoCounter, paths: Iterable[str | Path], categories: Categories = None
) -> Iterator[PhotoResult]:
    """Yield the results of `PhotoCounter.count_each`, in the same order, from many machines.

    Workers make a detector that the counter has by name; any other object is pickled.
    """
    detector, texts = counter.spec or counter.detector, counter.texts
    estimator, tiles = counter.estimator, counter.tiles

    def make(device: str) -> Process:
        on = device if isinstance(detector, str) else None
        return partial(PhotoCounter(detector, estimator, on, tiles, texts=texts).count_each, categories=categories)

    return _map_photos(make, paths)


def detect_each_with_ray(spec: str, texts: Sequence[str], paths: Iterable[str | Path]) -> Iterator[PhotoResult]:
    """Yield the results of `detect_each`, in the same order, from many machines."""
    return _map_photos(
        lambda device: partial(detect_each, detector=detector_of(spec, texts=texts, device=device)), paths
    )


def _run(batch: dict[str, Any], task: bytes, folder: Path, cpus: int, gpus: float) -> dict[str, Any]:
    """Process a batch of photos in a worker process."""
    torch.set_num_threads(cpus)
    with chdir(folder) if folder.is_dir() else nullcontext():  # relative paths start there
        process = _unpacked(task, "cuda" if gpus else "cpu")
        results = [pickle.dumps(result) for result in process(map(Path, batch["item"]))]
    return {"result": np.array(results, object)}


@lru_cache(maxsize=1)
def _unpacked(task: bytes, device: str) -> Process:
    """Make the detector once for all batches of a process."""
    process: Process = pickle.loads(task)(device)
    return process


def _map_photos(make: Callable[[str], Process], paths: Iterable[str | Path]) -> Iterator[PhotoResult]:
    names = [str(path) for path in paths]
    if not names:
        return
    ray = _connected()
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = context.print_on_execution_start = False
    cpus, gpus, workers = _resources(ray)
    batch = min(MAX_PHOTOS_PER_BATCH, -(-len(names) // (BATCHES_PER_WORKER * workers)))
    # Tasks rather than actors: Ray repeats a task whose machine is lost on any other.
    photos = ray.data.from_items(names, override_num_blocks=-(-len(names) // batch)).map_batches(
        _run,
        fn_args=(ray.cloudpickle.dumps(make), Path.cwd(), cpus, gpus),
        batch_size=batch,
        num_cpus=cpus,
        num_gpus=gpus or None,
    )
    try:
        for row in photos.iter_rows():
            yield pickle.loads(row["result"])
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, TallyboxError):
            raise cause from None
        raise TallyboxError(f"Ray gave up: {error_summary(cause)}") from error


def _resources(ray: Any) -> tuple[int, float, int]:
    """Return the cores and the share of a GPU of a worker, and the number of workers."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    with_gpu = [machine for machine in machines if machine.get("GPU", 0) >= 1]
    if not with_gpu:
        return 1, 0.0, max(1, int(sum(machine.get("CPU", 0) for machine in machines)))
    cores = min(machine.get("CPU", 1) / machine["GPU"] for machine in with_gpu)
    workers = WORKERS_PER_GPU * int(sum(machine["GPU"] for machine in with_gpu))
    return max(1, int(cores / WORKERS_PER_GPU)), 1 / WORKERS_PER_GPU, workers


def _connected() -> Any:
    """Return Ray, connected to the cluster of RAY_ADDRESS or to this machine, without usage statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import_optional("ray.data", needed_for="counting on many machines", install="'tallybox[ray]'")
    import ray

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if not ray.is_initialized():
        remedy = "check that it runs and that RAY_AUTH_MODE and RAY_AUTH_TOKEN are the same on all machines"
        with wrap_errors(f"Cannot reach the Ray cluster of RAY_ADDRESS; {remedy}"):
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    return ray
