"""Read photos of many formats, from files and from memory, as upright RGB."""

from __future__ import annotations

import ctypes
import threading
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from io import BytesIO
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tallybox.concurrency import in_batches
from tallybox.detections.detections import Size
from tallybox.errors import InputError, InputTypeError, TallyboxError
from tallybox.files import error_summary, import_optional, is_special

if TYPE_CHECKING:
    from PIL.Image import Image

# Formats whose readers only decode; others call programs (EPS) or fetch more files.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000", "HEIF")
SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".mpo", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".avif", ".jp2", ".heic", ".heif", ".hif"),
)
MAX_PIXELS = 400_000_000  # a file of some kilobytes can claim any size
KEPT_PIXELS = 64_000_000  # larger photos are reduced: Pillow takes four bytes a pixel
ORIENTATION = 0x0112  # EXIF's tag for how the camera was held
# The operations, as Pillow names them, that turn the orientations 2 to 8 upright.
UPRIGHT = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")
BILINEAR, BICUBIC = 2, 3  # Pillow's numbers for filters; Pillow is imported only to read photos
GREY = 114  # the padding of a photo in a detector's input

LARGE_PIXELS = 16_000_000  # six files of 300 kB that claim 99 million took 2.3 GB when several threads decoded them
BAND_PIXELS = 1 << 20
_one_large_photo = threading.Lock()
_opening = threading.Lock()  # the filters of warnings belong to the whole process

Result = TypeVar("Result")  # for one photo
PhotoSource: TypeAlias = "str | Path | bytes | BinaryIO | Image | NDArray[np.uint8] | Tensor | VideoFrame | Photo"


@dataclass(frozen=True)
class VideoFrame:
    """A frame of a video, counted like a photo."""

    video: Path
    seconds: float  # from the start of the video
    image: Image

    @property
    def name(self) -> str:
        """The video's path with the time, as media fragments have it: ``clip.mp4#t=1.5``."""
        return f"{self.video}#t={self.seconds:g}"


class PhotoTooLargeError(InputError):
    """A photo has more pixels than are decoded."""


@dataclass(frozen=True)
class Photo:
    """An upright photo. ``image`` may hold fewer pixels than ``size_wh``, the size that boxes are given in."""

    image: Image  # RGB
    size_wh: Size
    name: str | None = None

    @cached_property
    def pixels(self) -> Tensor:
        """The pixels ``[H, W, 3]``, uint8, in memory that a GPU reads while the host goes on."""
        width, height = self.image.size
        pixels = torch.empty((height, width, 3), dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        pixels.numpy()[:] = np.asarray(self.image)
        return pixels


def read_photo(source: PhotoSource, *, reduced_to: int | None = None, max_pixels: int = MAX_PIXELS) -> Photo:
    """Read a photo upright and as RGB, from a path, bytes, a binary file, a PIL image, an array or a tensor.

    Arrays are ``[H, W, 3]``, tensors ``[3, H, W]``, both uint8 and RGB. EXIF orientation is applied. Greyscale,
    palettes, CMYK and 16 bits become RGB, and transparent parts white. Of several frames the first is read. The
    decoded ``image`` may be smaller than ``size_wh``: above 64 megapixels, and with ``reduced_to`` as long as its
    longer side stays at least that long.

    >>> read_photo(np.zeros((48, 64, 3), np.uint8)).size_wh
    (64, 48)
    """
    if isinstance(source, Photo):
        return source
    given = source if isinstance(source, str | Path) else getattr(source, "name", getattr(source, "filename", None))
    label = str(given or f"the photo given as {type(source).__name__}")
    name = label if isinstance(source, str | Path | VideoFrame) else None
    try:
        with opened(source) as image:
            size_wh = image.size
            pixels = image.width * image.height
            size = f"{label} has {image.width}×{image.height} pixels"
            if not pixels:
                raise InputError(size)
            if pixels > max_pixels:
                raise PhotoTooLargeError(f"{size}; the limit is {max_pixels // 1_000_000} million")
            factor = max(max(size_wh) // (reduced_to or max(size_wh)), ceil((pixels / KEPT_PIXELS) ** 0.5), 1)
            if factor > 1 and not isinstance(source, pillow().Image):
                image.draft(None, (size_wh[0] // factor, size_wh[1] // factor))  # JPEG can be decoded smaller
            with _decoding(image.width * image.height):
                image.load()
                orientation = 1
                with suppress(Exception):  # EXIF that cannot be read is ignored
                    orientation = int(image.getexif().get(ORIENTATION) or 1)
                rgb = _reduced(image, max(1, factor * max(image.size) // max(size_wh)))
    except TallyboxError:
        raise
    except FileNotFoundError:
        raise InputError(f"No such photo: {label}") from None
    except Exception as error:  # readers of damaged files raise anything
        raise InputError(f"Cannot read {label}: {_reason(error)}") from None
    if 2 <= orientation <= 8:
        rgb = rgb.transpose(pillow().Transpose[UPRIGHT[orientation - 2]])
        if orientation >= 5:  # the camera was held sideways
            size_wh = (size_wh[1], size_wh[0])
    return Photo(rgb, size_wh, name)


def buffered(source: PhotoSource) -> PhotoSource:
    """Return the content of a binary file object; anything else as it is, which `read_photo` may refuse."""
    with suppress(Exception):
        content = source.read() if hasattr(source, "read") else None
        return content if isinstance(content, bytes) else source
    return source


def opened(source: PhotoSource) -> AbstractContextManager[Image]:
    """Open a photo, before any rotation; of files, only the header is read."""
    if isinstance(source, Photo | VideoFrame):
        return nullcontext(source.image)
    if isinstance(source, pillow().Image):
        return nullcontext(source)  # the caller closes it
    if isinstance(source, np.ndarray | torch.Tensor):
        return nullcontext(pillow().fromarray(_as_pixels(source)))
    if isinstance(source, str | Path):
        if is_special(Path(source)):
            raise InputError(f"{source} is a pipe or a device, not a photo")
        return _open(Path(source))
    content = source.read() if hasattr(source, "read") else source
    if isinstance(content, bytes | bytearray | memoryview):
        return _open(BytesIO(content))
    raise InputTypeError(
        "A photo is a path, bytes, a binary file object, a PIL image, a numpy array [H, W, 3] or a torch tensor "
        f"[3, H, W], both uint8; got {type(source).__name__}"
    )


def _as_pixels(pixels: NDArray[Any] | Tensor) -> NDArray[np.uint8]:
    """Return an array ``[H, W, 3]`` of an array or a tensor ``[3, H, W]``."""
    array = pixels.detach().cpu().movedim(0, -1).numpy() if isinstance(pixels, Tensor) else pixels
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        layout = "torch tensor must be [3, H, W]" if isinstance(pixels, Tensor) else "numpy array must be [H, W, 3]"
        raise InputError(f"A photo as a {layout}, uint8; got {list(pixels.shape)}, {pixels.dtype}")
    return np.ascontiguousarray(array)


def fitted_sizes(size_wh: Size, available_wh: Size, multiple: int) -> tuple[Size, Size]:
    """Return the sizes of a photo that is resized to fit, at least a pixel each, and then padded to multiples."""
    scale = min(available / side for available, side in zip(available_wh, size_wh, strict=True))
    width, height = (max(1, round(side * scale)) for side in size_wh)
    return (width, height), (-(-width // multiple) * multiple, -(-height // multiple) * multiple)


def letterbox(image: Image, resized_wh: Size, input_wh: Size, resampling: int) -> NDArray[np.uint8]:
    """Return an image, resized, at the top left of a grey one ``[H, W, 3]``."""
    resized = image if image.size == resized_wh else image.resize(resized_wh, resampling)
    padded = np.full((input_wh[1], input_wh[0], 3), GREY, np.uint8)
    padded[: resized_wh[1], : resized_wh[0]] = np.asarray(resized)
    return padded


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
    if image.mode.startswith(("I", "F")):  # more than 8 bits a colour: scaled from 1, 255 or 65535
        image = image if image.mode in ("I", "I;16", "F") else image.convert("I")
        highest: Any = image.getextrema()[1]
        scale = 255 / next((largest for largest in (1, 255) if highest <= largest), 65535)
        image = image.point(lambda value: value * scale + 0.5).convert("L")
    can_reduce = image.mode in ("L", "RGB", "RGBA", "CMYK")
    if image.width * image.height <= LARGE_PIXELS or (image.mode == "RGB" and factor == 1):
        return _as_rgb(image.reduce(factor) if factor > 1 and can_reduce else image)
    rows = factor * max(1, BAND_PIXELS // (image.width * factor))
    result: Image = pillow().new("RGB", (-(-image.width // factor), -(-image.height // factor)))
    for top in range(0, image.height, rows):
        part = image.crop((0, top, image.width, min(top + rows, image.height)))
        part = _as_rgb(part.reduce(factor)) if can_reduce else _as_rgb(part).reduce(factor)
        result.paste(part, (0, top // factor))
    return result


def _as_rgb(image: Image) -> Image:
    """Convert a loaded image of any mode to RGB; transparent parts become white."""
    if image.has_transparency_data:
        front, image = image.convert("RGBA"), pillow().new("RGBA", image.size, "white")
        image.alpha_composite(front)
    return image if image.mode == "RGB" else image.convert("RGB")


def _open(file: Path | BytesIO) -> Image:
    """Open an image, reading only its header; our own limit replaces Pillow's, which refuses 179 megapixels."""
    reader = pillow()
    with _opening, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limit, reader.MAX_IMAGE_PIXELS = reader.MAX_IMAGE_PIXELS, None
        try:
            image: Image = reader.open(file, formats=[name for name in FORMATS if name in reader.OPEN])
        finally:
            reader.MAX_IMAGE_PIXELS = limit
    return image


def _reason(error: Exception) -> str:
    if not isinstance(error, pillow().UnidentifiedImageError):
        return getattr(error, "strerror", None) or error_summary(error)
    heic = "" if "HEIF" in pillow().OPEN else "; HEIC needs pip install 'tallybox[heic]'"
    return f"unsupported image format (JPEG, PNG, WebP, TIFF, GIF, BMP, AVIF and others are read{heic})"


@cache
def pillow() -> Any:
    """Return Pillow with its readers, and that of HEIC, the format of phones, if the package for it is installed."""
    module = import_optional("PIL.Image", needed_for="reading photos", install="'tallybox[photos]'", package="pillow")
    module.init()
    with suppress(ImportError):
        import_module("pillow_heif").register_heif_opener()
    return module


def jpeg_url(image: Image, max_side: int, quality: int) -> str:
    """Return an image as a data URL, encoded anew at a page's size, so that its metadata are left out."""
    image, file = image.copy(), BytesIO()
    image.thumbnail((max_side, max_side))
    image.save(file, "JPEG", quality=quality, optimize=True)
    return f"data:image/jpeg;base64,{b64encode(file.getbuffer()).decode()}"


def boxes_in_photo(boxes_xyxy: NDArray[np.float32], input_wh: Size, photo_wh: Size) -> NDArray[np.float32]:
    """Scale boxes ``[N, 4]`` from the model's input image to the photo, and cut them at its edges."""
    size = np.tile(np.array(photo_wh, np.float32), 2)  # width, height, width, height
    return (boxes_xyxy * (size / np.tile(np.array(input_wh, np.float32), 2))).clip(0, size)


def map_same_size(
    function: Callable[[Sequence[Photo]], Sequence[Result]],
    photos: Sequence[Photo],
    sizes: Sequence[Size],
    *,
    at_once: int | None = None,
) -> list[Result]:
    """Call a function with batches of photos of the same size; return its results in the order of the photos.

    Models pad the photos of a batch to the largest of them, which changes what they detect: what is detected in a photo
    must not depend on the photos beside it. A batch has up to ``at_once`` photos, by default all of a size.
    """
    results: dict[int, Result] = {}
    for _, indices in groupby(sorted(range(len(photos)), key=sizes.__getitem__), key=sizes.__getitem__):
        for batch in in_batches(indices, at_once or len(photos)):
            results.update(zip(batch, function([photos[index] for index in batch]), strict=True))
    return [results[index] for index in range(len(photos))]
