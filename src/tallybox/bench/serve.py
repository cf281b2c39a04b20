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
from typing import Any

from tallybox.bench.load import LoadResult, Question, put_under_load
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
    questions = count_questions(shipped_estimator(), made_up_photos(PHOTOS, seed=1)[0])
    for clients in CLIENTS:
        batched = measured(questions, clients, seconds)
        alone = measured(questions, clients, seconds, "--images-at-once", "1")
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


def measured(questions: list[Question], clients: int, seconds: float, *options: str) -> LoadResult:
    """Put a service of its own process under load; raise if an answer was lost or wrong."""
    with running_service(*options) as address:
        asyncio.run(put_under_load(address, questions, clients=4, seconds=2))  # kernels are made on first use
        result = asyncio.run(put_under_load(address, questions, clients=clients, seconds=seconds))
    if result.lost or result.wrong:
        raise TallyboxError(
            f"{result.lost} answers were lost and {len(result.wrong)} wrong, such as {result.wrong[:1]}"
        )
    return result


def count_questions(estimator: CountEstimator, images: list[Detections]) -> list[Question]:
    """Return a request to count for each image, with what the library says itself."""
    questions = []
    for image, predictions in estimator.predict_each(images):
        asked = {
            "image": image.image_id,
            "boxes": image.boxes.tolist(),
            "scores": image.scores.tolist(),
            "category_ids": image.category_ids.tolist(),
        }
        expected = {estimator.category_name(key): said.to_dict() for key, said in predictions.items()}
        body = json.dumps({"images": [asked]}).encode()
        questions.append(Question("/v1/count", body, is_right=_Expected(image.image_id, expected)))
    return questions


@dataclass(frozen=True)
class _Expected:
    """Says whether an answer is the library's."""

    image: Any
    counts: dict[str, dict[str, Any]]

    def __call__(self, answer: Any) -> bool:
        (said,) = answer["images"]
        return (
            said["image"] == self.image
            and said["counts"].keys() == self.counts.keys()
            and all(self._is_same(said["counts"][name], expected) for name, expected in self.counts.items())
        )

    def _is_same(self, said: dict[str, Any], expected: dict[str, Any]) -> bool:
        return said.keys() == expected.keys() and all(
            abs(said[key] - value) <= (TOLERANCE if key == "expected" else 0) for key, value in expected.items()
        )


@contextmanager
def running_service(*options: str) -> Iterator[str]:
    """Run `tallybox serve` on a free port; give its address."""
    command = [sys.executable, "-m", "tallybox", "serve", "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        try:
            for line in process.stderr:
                said += line
                if STARTED in line:
                    yield line.split(STARTED)[1].split()[0]
                    return
            raise TallyboxError(f"tallybox serve must start, but it said: {said.strip()}")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
