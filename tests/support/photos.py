"""The embedded detector, loaded once for all tests that look at it, and photos of any kind written to files."""

import struct
import zlib
from functools import cache
from io import BytesIO

import numpy as np
from PIL import Image

from tallybox.estimator.estimator import CountEstimator
from tallybox.photos import PicoDet
from tallybox.photos.shipped import shipped_estimator


@cache
def embedded_detector() -> PicoDet:
    """Return PicoDet on the CPU."""
    return PicoDet(device="cpu")


@cache
def embedded_estimator() -> CountEstimator:
    """Return the shipped estimator; do not change it."""
    return shipped_estimator()


def gradient(width: int, height: int) -> Image.Image:
    """Return a picture whose every corner differs, so that a turn shows."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack((across, down, 255 - across), -1).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """Return an image as the bytes of a file."""
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def claiming(side: int) -> bytes:
    """Return a PNG of a few bytes whose header claims to be a square of any size."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 999))
