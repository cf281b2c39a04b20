"""Reading photos of many formats as upright RGB; a file that cannot be read is an error of one line."""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError, TallyboxError
from tallybox.files import error_summary, import_optional

if TYPE_CHECKING:
    from PIL.Image import Image

# Formats whose readers only decode; others call programs (EPS) or fetch more files.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000", "HEIF")
SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".mpo", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".avif", ".jp2", ".heic", ".heif", ".hif"),
)
HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")  # what follows "ftyp" in HEIC
MADE_BY = b"drawn by tallybox"  # the JPEG comment of photos in which tallybox outlined what it counted
MAX_PIXELS = 100_000_000  # 300 MB as RGB; a file of some kilobytes can claim any size
ORIENTATION = 0x0112  # EXIF's tag for how the camera was held
# The operations, as Pillow names them, that turn the orientations 2 to 8 upright.
UPRIGHT = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")
BILINEAR, BICUBIC = 2, 3  # Pillow's numbers for filters; Pillow is imported only to read photos
GREY = 114  # the padding of a photo in a detector's input

# Six files of 300 kB that claim 99 million pixels took 2.3 GB when several threads decoded them at once.
LARGE_PIXELS = 16_000_000
BAND_PIXELS = 1 << 20
_one_large_photo = threading.Lock()

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
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(f"{path} must be a photo, but it is a folder")
        if path.exists() and not path.is_file():
            raise InputError(f"{path} must be a photo, but it is a pipe or a device, which is never read")
        with _open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise InputError(
                    f"{path} must have at most {MAX_PIXELS // 1_000_000} million pixels, "
                    f"but it claims {image.width} x {image.height}; make it smaller first"
                )
            size_wh = image.size
            min_side = reduced_to or max(size_wh)
            if (factor := max(size_wh) // min_side) > 1:
                image.draft(None, (size_wh[0] // factor, size_wh[1] // factor))  # JPEG can be decoded smaller
            with _decoding(image.width * image.height):
                image.load()
                orientation = 1
                with suppress(Exception):  # EXIF that cannot be read is ignored
                    orientation = int(image.getexif().get(ORIENTATION) or 1)
                rgb = _reduced(image, max(1, max(image.size) // min_side))
                if rgb is not image:
                    image.close()  # its pixels too
    except TallyboxError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} must be a photo, but there is no such file; check the path") from None
    except MemoryError:
        raise InputError(f"{path} must fit into memory, but it does not; make it smaller first") from None
    except Exception as error:  # readers of damaged files raise whatever their parsing stumbles on
        raise InputError(f"{path} must be a photo, but {_reason(error, path)}") from None
    if 2 <= orientation <= 8:
        rgb = rgb.transpose(_pillow().Transpose[UPRIGHT[orientation - 2]])
        if orientation >= 5:  # the camera was held sideways
            size_wh = (size_wh[1], size_wh[0])
    return Photo(rgb, size_wh, str(path))


def photo_size(path: Path) -> tuple[int, int]:
    """Return width and height of a photo from its header."""
    try:
        with _open(path) as image:
            return image.size
    except Exception as error:  # readers of damaged files raise anything
        raise InputError(f"{path} must be a photo, but {_reason(error, path)}") from None


def letterbox(
    image: Image, resized_wh: tuple[int, int], input_wh: tuple[int, int], resampling: int
) -> NDArray[np.uint8]:
    """Return an image, resized, at the top left of a grey one ``[H, W, 3]``."""
    resized = image if image.size == resized_wh else image.resize(resized_wh, resampling)
    padded = np.full((input_wh[1], input_wh[0], 3), GREY, np.uint8)
    padded[: resized_wh[1], : resized_wh[0]] = np.asarray(resized)
    return padded


def is_outlined_copy(path: Path) -> bool:
    """Return whether a file is a photo that `tallybox count --save` drew on."""
    if path.is_file() and not path.is_symlink():
        # Readers of damaged files raise whatever their parsing stumbles on.
        with suppress(Exception), _pillow().open(path, formats=["JPEG"]) as picture:
            return bool(picture.info.get("comment") == MADE_BY)
    return False


@contextmanager
def _decoding(pixels: int) -> Iterator[None]:
    """Let one large photo at a time be decoded, and hand its memory back to the system before the next one."""
    if pixels <= LARGE_PIXELS:
        yield
        return
    with _one_large_photo:
        yield
        with suppress(OSError, AttributeError):  # only glibc has it; its threads each keep the memory of a photo
            ctypes.CDLL(None).malloc_trim(0)


def _reduced(image: Image, factor: int) -> Image:
    """Return a loaded image as RGB with its sides divided; a large one is converted in bands, without a second copy."""
    can_reduce = image.mode in ("L", "RGB", "RGBA", "CMYK")
    if image.width * image.height <= LARGE_PIXELS or (image.mode == "RGB" and factor == 1):
        return as_rgb(image.reduce(factor) if factor > 1 and can_reduce else image)
    rows = factor * max(1, BAND_PIXELS // (image.width * factor))
    bands = [(0, top, image.width, min(top + rows, image.height)) for top in range(0, image.height, rows)]
    highest = max(float(_values(image.crop(band)).max()) for band in bands) if _is_deep(image) else None
    result: Image = _pillow().new("RGB", (-(-image.width // factor), -(-image.height // factor)))
    for band in bands:
        part = image.crop(band)
        part = as_rgb(part.reduce(factor)) if can_reduce else as_rgb(part, highest).reduce(factor)
        result.paste(part, (0, band[1] // factor))
    return result


def as_rgb(image: Image, highest: float | None = None) -> Image:
    """Convert a loaded image of any mode to RGB; transparent parts become white.

    ``highest`` is the highest value of the whole image, where this is a band of it: it scales more than 8 bits.
    """
    pillow = _pillow()
    if _is_deep(image):
        # 16 bits are scaled to 8; floating point is taken as from 0 to 1, or to 255 where it goes beyond 1.
        values = _values(image)
        highest = float(values.max(initial=0)) if highest is None else highest
        if image.mode == "F":
            values = values * (255 if highest <= 1 else 1)
        elif image.mode.startswith("I;16") or highest > 255:
            values = values / 257
        image = pillow.fromarray(values.clip(0, 255).round().astype(np.uint8))
    elif image.has_transparency_data:
        front = image.convert("RGBA")
        white = pillow.new("RGBA", front.size, (255, 255, 255, 255))
        white.alpha_composite(front)
        image = white
    return image if image.mode == "RGB" else image.convert("RGB")


def _is_deep(image: Image) -> bool:
    """Return whether an image has more than 8 bits a colour."""
    return image.mode == "F" or image.mode.startswith("I")


def _values(image: Image) -> NDArray[np.float64]:
    return np.nan_to_num(np.asarray(image, np.float64), nan=0, posinf=0, neginf=0)


def _open(path: Path) -> Image:
    """Open an image, reading only its header; `MAX_PIXELS` replaces Pillow's own warning of large images."""
    pillow = _pillow()
    pillow.init()
    _register_heif()
    with _opening, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image: Image = pillow.open(path, formats=[name for name in FORMATS if name in pillow.OPEN])
    return image


@cache
def _register_heif() -> None:
    """Let Pillow read HEIC, as phones write it, where the package for it is installed."""
    with suppress(ImportError):
        import_module("pillow_heif").register_heif_opener()


def _reason(error: Exception, path: Path) -> str:
    if type(error).__name__ == "UnidentifiedImageError":
        with suppress(OSError), path.open("rb") as file:
            start = file.read(12)
            if start[4:8] == b"ftyp" and start[8:] in HEIF_BRANDS:
                return (
                    "it is HEIC, which needs the package pillow-heif; pip install 'tallybox[heic]', or save it as JPEG"
                )
        return "it is no image of a kind that is read (JPEG, PNG, WebP, TIFF, GIF, BMP, AVIF and others)"
    return f"it cannot be read: {error_summary(error)}"


def _pillow() -> Any:
    return import_optional("PIL.Image", needed_for="reading photos", install="'tallybox[photos]'", package="pillow")
