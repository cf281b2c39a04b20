"""What the service accepts, and the one line a client reads when it asked for more."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds of one request, and of all that wait together."""

    body_bytes: int = 16 * 2**20
    held_bytes: int = 256 * 2**20  # bodies of all requests that are being read or answered
    image_pixels: int = 40_000_000
    images: int = 256  # of one request
    boxes: int = 20_000  # of one request to count
    questions: int = 10_000  # images times named categories of one request
    explained_boxes: int = 100  # matrices grow with the square
    seconds: float = 30.0  # to send a request, and again to answer it
    waiting: int = 2_000  # requests to count; more would wait longer than anybody does


class Refused(Exception):  # noqa: N818 - an answer, not a failure of ours
    """A request that is answered with a status of 4xx or 503 and one line."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status
        self.said = said
