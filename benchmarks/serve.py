"""Measure the HTTP service under load, beside the same service without batching; every answer is checked."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tallybox.bench.load import LoadRequest, LoadResult, put_under_load
from tallybox.bench.measure import Row
from tallybox.bench.photos import made_up_photos
from tallybox.detections.container import Detections
from tallybox.errors import TallyboxError
from tallybox.estimator.estimator import CountEstimator
from tallybox.photos.shipped import shipped_estimator

STARTED = "tallybox is at "
PHOTOS = 64
CLIENTS = (1, 20, 200)

# A batch adds numbers up in another order than an image alone.
TOLERANCE = 2e-3


@dataclass(frozen=True)
class ServiceRow(Row):
    """One number of clients: the service, and (the reference) the same without batching."""

    requests_per_second: float
    reference_requests_per_second: float
    p99_ms: float
    reference_p99_ms: float


def bench_serve(seconds: float) -> Iterator[ServiceRow]:
    """Yield a row for each number of clients; the clients share the machine with the service."""
    requests = count_requests(shipped_estimator(), made_up_photos(PHOTOS, seed=1)[0])
    for clients in CLIENTS:
        batched = measured(requests, clients, seconds)
        alone = measured(requests, clients, seconds, "--images-at-once", "1")
        yield ServiceRow(
            case=f"{clients} client{'s' if clients > 1 else ''}",
            median_ms=batched.percentile_ms(0.5),
            reference_ms=alone.percentile_ms(0.5),
            speedup=batched.per_second / alone.per_second,
            peak_bytes=None,
            reference_peak_bytes=None,
            requests_per_second=batched.per_second,
            reference_requests_per_second=alone.per_second,
            p99_ms=batched.percentile_ms(0.99),
            reference_p99_ms=alone.percentile_ms(0.99),
        )


def measured(requests: list[LoadRequest], clients: int, seconds: float, *options: str) -> LoadResult:
    """Put a service in a process of its own under load; raise if an answer was lost or wrong."""
    with running_service(*options) as address:
        asyncio.run(put_under_load(address, requests, clients=4, seconds=2))  # kernels are compiled on first use
        result = asyncio.run(put_under_load(address, requests, clients=clients, seconds=seconds))
    if result.lost or result.wrong:
        raise TallyboxError(
            f"{result.lost} answers were lost and {len(result.wrong)} wrong, such as {result.wrong[:1]}"
        )
    return result


def count_requests(estimator: CountEstimator, images: list[Detections]) -> list[LoadRequest]:
    """Return a request to count for each image, with what the library counts itself."""
    requests = []
    for image, predictions in estimator.predict_each(images):
        detections = {
            "image": image.image_id,
            "boxes": image.boxes.tolist(),
            "scores": image.scores.tolist(),
            "category_ids": image.category_ids.tolist(),
        }
        counts = {name: one.to_dict() for name, one in predictions.by_name().items()}
        is_right = partial(_is_same, {"images": [{"image": image.image_id, "counts": counts}]})
        requests.append(LoadRequest("/v1/count", json.dumps({"images": [detections]}).encode(), is_right))
    return requests


def _is_same(expected: Any, found: Any) -> bool:
    """Compare two JSON values; numbers with a fraction may differ by the tolerance."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(_is_same(one, found[key]) for key, one in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(_is_same, expected, found))
    return abs(found - expected) <= TOLERANCE if isinstance(expected, float) else bool(found == expected)


@contextmanager
def running_service(*options: str) -> Iterator[str]:
    """Run `tallybox serve` on a free port, and yield its address."""
    command = [sys.executable, "-m", "tallybox", "serve", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        output = ""
        try:
            for line in process.stderr:
                output += line
                if STARTED in line:
                    yield line.split(STARTED)[1].split()[0]
                    return
            raise TallyboxError(f"tallybox serve must start, but it printed: {output.strip()}")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
