"""Measure the HTTP service under load, beside the same service without batching; every answer is checked.

    python benchmarks/serve.py benchmarks/results/serve--cpu--2-cores.json     # a minute and a half

The clients share the machine with the service. Each has a connection of its own that it keeps, a plain socket: a client
library would take more time than the service.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from benchmarks.measure import BenchRow, report
from benchmarks.synthetic_photos import made_up_photos

from tallybox.detections.detections import Detections
from tallybox.errors import TallyboxError
from tallybox.estimator.estimator import CountEstimator
from tallybox.files import write_text
from tallybox.photos.shipped import shipped_estimator

STARTED = "tallybox is at "
PHOTOS = 64
CLIENTS = (1, 20, 200)
SECONDS = 10.0  # for each number of clients

# A batch adds numbers up in another order than an image alone.
TOLERANCE = 2e-3

PROGRAM = f"""
import sys
from tallybox.photos.shipped import shipped_estimator
from tallybox.service.api import ServiceSettings
from tallybox.service.server import serve

settings = ServiceSettings(shipped_estimator(), images_at_once=int(sys.argv[1]))
serve(settings, "127.0.0.1", 0, on_start=lambda at: print("{STARTED}" + at, file=sys.stderr, flush=True))
"""


@dataclass(frozen=True)
class LoadRequest:
    """A request, and whether the JSON of an answer is right."""

    path: str
    body: bytes
    is_right: Callable[[Any], bool]

    def to_bytes(self, host: str) -> bytes:
        """Return the request as it is sent."""
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(self.body)}\r\n\r\n"
        )
        return head.encode() + self.body


@dataclass
class LoadResult:
    """What came of a load: every request must have been answered, and rightly."""

    seconds: float = 0.0
    sent: int = 0
    wrong: list[str] = field(default_factory=list)  # answers that are not what they should be
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Requests without an answer."""
        return self.sent - len(self.latencies_ms)

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return len(self.latencies_ms) / self.seconds

    def percentile_ms(self, share: float) -> float:
        """Return the latency that this share of the answers did not exceed."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


async def put_under_load(address: str, requests: Sequence[LoadRequest], *, clients: int, seconds: float) -> LoadResult:
    """Let ``clients`` send requests in turn, each as soon as it has an answer, for so many seconds."""
    result = LoadResult()
    url = urlsplit(address)
    start = time.perf_counter()

    async def run_client(number: int) -> None:
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        try:
            while (sent_at := time.perf_counter()) < start + seconds:
                request = requests[number % len(requests)]
                number += 1
                result.sent += 1
                writer.write(request.to_bytes(url.netloc))
                status, _, content = await read_answer(reader)
                result.latencies_ms.append(1e3 * (time.perf_counter() - sent_at))
                if status != 200 or not request.is_right(json.loads(content)):
                    result.wrong.append(f"{status}: {content[:200]!r}")
        finally:
            writer.close()

    failures = await asyncio.gather(*map(run_client, range(clients)), return_exceptions=True)
    result.seconds = time.perf_counter() - start
    result.wrong += [repr(failure) for failure in failures if isinstance(failure, Exception)]
    return result


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Return the status, the headers and the body of an answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
    return int(head[0].split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


@dataclass(frozen=True)
class ServiceRow(BenchRow):
    """One number of clients: the service, and (the reference) the same without batching."""

    requests_per_second: float
    reference_requests_per_second: float
    p99_ms: float
    reference_p99_ms: float


def bench_serve(seconds: float = SECONDS) -> Iterator[ServiceRow]:
    """Yield a row for each number of clients."""
    requests = count_requests(shipped_estimator(), made_up_photos(PHOTOS, seed=1)[0])
    for clients in CLIENTS:
        batched = measured(requests, clients, seconds)
        alone = measured(requests, clients, seconds, images_at_once=1)
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


def measured(requests: list[LoadRequest], clients: int, seconds: float, *, images_at_once: int = 256) -> LoadResult:
    """Put a service in a process of its own under load; raise if an answer was lost or wrong."""
    with running_service(images_at_once) as address:
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
        counts = {name: prediction.to_dict() for name, prediction in predictions.by_name().items()}
        is_right = partial(_is_same, {"images": [{"image": image.image_id, "counts": counts}]})
        requests.append(LoadRequest("/v1/count", json.dumps({"images": [detections]}).encode(), is_right))
    return requests


def _is_same(expected: Any, answer: Any) -> bool:
    """Compare two JSON values; numbers with a fraction may differ by the tolerance."""
    if isinstance(expected, dict):
        return answer.keys() == expected.keys() and all(_is_same(value, answer[key]) for key, value in expected.items())
    if isinstance(expected, list):
        return len(answer) == len(expected) and all(map(_is_same, expected, answer))
    return abs(answer - expected) <= TOLERANCE if isinstance(expected, float) else bool(answer == expected)


@contextmanager
def running_service(images_at_once: int) -> Iterator[str]:
    """Run the service on a free port, and yield its address."""
    command = [sys.executable, "-c", PROGRAM, str(images_at_once)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        output = ""
        try:
            for line in process.stderr:
                output += line
                if STARTED in line:
                    yield line.split(STARTED)[1].split()[0]
                    return
            raise TallyboxError(f"The service must start, but it printed: {output.strip()}")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def main(out: Path) -> None:
    """Write all rows to a file, and say each when it is measured."""
    rows: list[BenchRow] = []
    for row in bench_serve():
        rows.append(row)
        without = f"without batching {row.reference_requests_per_second:.4g}"
        print(f"{row.case}: {row.requests_per_second:.4g} requests/s, {without}", file=sys.stderr)
    write_text(out, json.dumps(report(rows, torch.device("cpu")), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
