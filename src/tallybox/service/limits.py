"""Limits of the service."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one request, of all pending requests together, and of connections."""

    body_bytes: int = 16 * 2**20  # of a photo
    buffered_bytes: int = 256 * 2**20  # bodies of all requests that are being read or answered
    json_bytes: int = 4 * 2**20  # of a body of JSON; parsing it takes 0.2 s, in which no other request is answered
    image_pixels: int = 40_000_000
    images: int = 256  # of one request
    boxes: int = 20_000  # of one request to count
    explained_boxes: int = 100  # matrices grow with the square
    seconds: float = 30.0  # to send a request and to answer it
    pending: int = 2_000  # requests to count; more would wait longer than clients do
    header_seconds: float = 10.0  # to send the header of a request
    connections: int = 16_384  # more wait until others end
