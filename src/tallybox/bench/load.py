"""Many clients at once against an HTTP service, each on a connection of its own that it keeps.

Written on plain sockets: on the machine it measures, a client library would take more time than the service.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


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
