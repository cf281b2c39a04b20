"""Photos of every kind as upright RGB, or one line that says why a file is none."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallybox.errors import InputError
from tallybox.files import import_optional

if TYPE_CHECKING:
    from PIL.Image import Image

# Readers that only decode: others call programs (EPS) or fetch more files.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".mpo", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".avif", ".jp2"),
)
MOST_PIXELS = 100_000_000  # 300 MB as RGB; a file of some kilobytes can claim any size
ORIENTATION = 0x0112  # EXIF's tag for how the camera was held

# Python's filters of warnings belong to the whole process; only one thread may change them at a time.
_opening = threading.Lock()


@dataclass(frozen=True)
class Photo:
    """An upright photo. ``image`` may hold fewer pixels than ``size_wh``, the size that boxes are given in."""

    image: Image  # RGB
    size_wh: tuple[int, int]
    name: str | None = None


def read_photo(path: str | Path, *, reduced_to: int | None = None) -> Photo:
    """Read a photo: turned upright by its EXIF orientation, greyscale, palettes, CMYK and 16 bits as RGB.

    What is transparent becomes white, as on a page. Of several frames the first is taken. With ``reduced_to`` the
    longer side may be divided by a whole number while it stays at least that long, which saves time and memory.
    """
    pillow = _pillow()
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} must be a photo, but it is a folder")
    try:
        with _open(pillow, path) as image:
            if image.width * image.height > MOST_PIXELS:
                raise InputError(
                    f"{path} must have at most {MOST_PIXELS // 1_000_000} million pixels, "
                    f"but it claims {image.width} x {image.height}; make it smaller first"
                )
            size_wh = image.size
            factor = 1 if reduced_to is None else max(1, max(size_wh) // reduced_to)
            if factor > 1:
                image.draft(None, (size_wh[0] // factor, size_wh[1] // factor))  # JPEG can be decoded smaller
            image.load()
            turned = _orientation(image)
            left = 1 if reduced_to is None else max(1, max(image.size) // reduced_to)
            rgb = as_rgb(image.reduce(left) if left > 1 and image.mode in ("L", "RGB", "RGBA", "CMYK") else image)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} must be a photo, but there is no such file; check the path") from None
    except MemoryError:
        raise InputError(f"{path} must fit into memory, but it does not; make it smaller first") from None
    except Exception as error:  # readers of damaged files raise whatever their parsing stumbles on
        raise InputError(f"{path} must be a photo, but {_said(error)}") from None
    if turned is not None:
        rgb = rgb.transpose(turned)
        if turned in _sideways(pillow):
            size_wh = (size_wh[1], size_wh[0])
    return Photo(rgb, size_wh, str(path))


def as_rgb(image: Image) -> Image:
    """Turn a loaded image of any mode into RGB; transparent parts become white.

    >>> from PIL import Image
    >>> as_rgb(Image.new("LA", (1, 1), (0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    if image.mode == "F" or image.mode.startswith("I"):
        return _eight_bits(image).convert("RGB")
    if image.has_transparency_data:
        pillow = _pillow()
        front = image.convert("RGBA")
        white = pillow.new("RGBA", front.size, (255, 255, 255, 255))
        white.alpha_composite(front)
        flat: Image = white.convert("RGB")
        return flat
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image: Image) -> Image:
    """Scale 16 bits to 8; floating point is taken as from 0 to 1, or to 255 where it goes beyond 1."""
    values = np.nan_to_num(np.asarray(image, np.float64), nan=0, posinf=0, neginf=0)
    highest = values.max(initial=0)
    if image.mode == "F":
        values = values * (255 if highest <= 1 else 1)
    elif image.mode.startswith("I;16") or highest > 255:
        values = values / 257
    scaled: Image = _pillow().fromarray(values.clip(0, 255).round().astype(np.uint8))
    return scaled


def _open(pillow: Any, path: Path) -> Image:
    """Read the header; Pillow's warning of large images gives way to our limit."""
    pillow.init()
    known = [name for name in FORMATS if name in pillow.OPEN]
    with _opening, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image: Image = pillow.open(path, formats=known)
    return image


def _orientation(image: Image) -> Any:
    """Return how to turn the image, or None; EXIF that cannot be read says nothing about the pixels."""
    try:
        value = image.getexif().get(ORIENTATION)
    except Exception:  # as above
        return None
    turn = _pillow().Transpose
    return {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }.get(value or 1)


def _sideways(pillow: Any) -> tuple[Any, ...]:
    turn = pillow.Transpose
    return turn.TRANSPOSE, turn.ROTATE_270, turn.TRANSVERSE, turn.ROTATE_90


def _said(error: Exception) -> str:
    if type(error).__name__ == "UnidentifiedImageError":
        return "it is no image of a kind that is read (JPEG, PNG, WebP, TIFF, GIF, BMP, AVIF and others)"
    return f"it cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"


def _pillow() -> Any:
    return import_optional("PIL.Image", needed_for="reading photos", install="'tallybox[photos]'", package="pillow")
