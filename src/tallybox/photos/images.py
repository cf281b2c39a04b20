"""Photos of every kind as upright RGB; a file that is none is an error of one line."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallybox.errors import InputError
from tallybox.files import first_line, import_optional

if TYPE_CHECKING:
    from PIL.Image import Image

# Readers that only decode: others call programs (EPS) or fetch more files.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".mpo", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".avif", ".jp2"),
)
MAX_PIXELS = 100_000_000  # 300 MB as RGB; a file of some kilobytes can claim any size
ORIENTATION = 0x0112  # EXIF's tag for how the camera was held
# What turns each orientation upright, as Pillow names it.
UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}

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
            if image.width * image.height > MAX_PIXELS:
                raise InputError(
                    f"{path} must have at most {MAX_PIXELS // 1_000_000} million pixels, "
                    f"but it claims {image.width} x {image.height}; make it smaller first"
                )
            size_wh = image.size
            factor = 1 if reduced_to is None else max(1, max(size_wh) // reduced_to)
            if factor > 1:
                image.draft(None, (size_wh[0] // factor, size_wh[1] // factor))  # JPEG can be decoded smaller
            image.load()
            orientation = _orientation(image)
            left = 1 if reduced_to is None else max(1, max(image.size) // reduced_to)
            rgb = as_rgb(image.reduce(left) if left > 1 and image.mode in ("L", "RGB", "RGBA", "CMYK") else image)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} must be a photo, but there is no such file; check the path") from None
    except MemoryError:
        raise InputError(f"{path} must fit into memory, but it does not; make it smaller first") from None
    except Exception as error:  # readers of damaged files raise whatever their parsing stumbles on
        raise InputError(f"{path} must be a photo, but {_reason(error)}") from None
    if orientation in UPRIGHT:
        rgb = rgb.transpose(pillow.Transpose[UPRIGHT[orientation]])
        if orientation >= 5:  # the camera was held sideways
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


def _orientation(image: Image) -> int:
    """Return EXIF's orientation; 1 is upright. EXIF that cannot be read is ignored."""
    try:
        return int(image.getexif().get(ORIENTATION) or 1)
    except Exception:  # as above
        return 1


def _reason(error: Exception) -> str:
    if type(error).__name__ == "UnidentifiedImageError":
        return "it is no image of a kind that is read (JPEG, PNG, WebP, TIFF, GIF, BMP, AVIF and others)"
    return f"it cannot be read: {first_line(error)}"


def _pillow() -> Any:
    return import_optional("PIL.Image", needed_for="reading photos", install="'tallybox[photos]'", package="pillow")
