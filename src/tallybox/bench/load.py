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

IsRight = Callable[[Any], bool]  # whether an answer's JSON is what it should be


@dataclass(frozen=True)
class Question:
    """A request, ready to be sent, and what must come back."""

    path: str
    body: bytes
    is_right: IsRight


@dataclass
class LoadResult:
    """What came of a load: every question must have been answered, and rightly."""

    seconds: float = 0.0
    asked: int = 0
    wrong: list[str] = field(default_factory=list)  # answers that are not what they should be
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Questions that nobody answered."""
        return self.asked - len(self.latencies_ms)

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return len(self.latencies_ms) / self.seconds

    def percentile_ms(self, share: float) -> float:
        """Return the latency that this share of the answers did not exceed."""
        ordered = sorted(self.latencies_ms)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


async def put_under_load(address: str, questions: Sequence[Question], *, clients: int, seconds: float) -> LoadResult:
    """Let ``clients`` ask in turn, each as soon as it was answered, for so many seconds."""
    result = LoadResult()
    start = time.perf_counter()
    deadline = start + seconds
    asking = [_client(address, questions, number, deadline, result) for number in range(clients)]
    failures = await asyncio.gather(*asking, return_exceptions=True)
    result.seconds = time.perf_counter() - start
    result.wrong += [repr(failure) for failure in failures if isinstance(failure, Exception)]
    return result


async def _client(
    address: str, questions: Sequence[Question], number: int, deadline: float, result: LoadResult
) -> None:
    place = urlsplit(address)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        turn = number
        while time.perf_counter() < deadline:
            question = questions[turn % len(questions)]
            turn += 1
            result.asked += 1
            begun = time.perf_counter()
            writer.write(_request(place.netloc, question))
            status, content = await _answer(reader)
            result.latencies_ms.append(1e3 * (time.perf_counter() - begun))
            if status != 200 or not question.is_right(json.loads(content)):
                result.wrong.append(f"{status}: {content[:200]!r}")
    finally:
        writer.close()


def _request(host: str, question: Question) -> bytes:
    head = (
        f"POST {question.path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(question.body)}\r\n\r\n"
    )
    return head.encode() + question.body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if ": " in line)
    return int(head[0].split()[1]), await reader.readexactly(int(headers["content-length"]))
