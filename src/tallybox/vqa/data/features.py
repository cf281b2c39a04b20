"""Bottom-up features: a TSV file with one photo per line, its boxes and features in base64, plain or gzipped.

The columns are image_id, image_w, image_h, num_boxes, boxes (`[N, 4]` float32, x1 y1 x2 y2 in pixels) and features
(`[N, F]` float32). N is 36 for every photo, or between 10 and 100.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import atomic_writing, open_binary

COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
FLOAT32 = np.dtype("<f4")
READ_BYTES = 1 << 22  # lines are long; smaller reads take three times as long


class PhotoFeatures(NamedTuple):
    """The N proposals of one photo with F features each."""

    image_id: int
    size_wh: tuple[float, float]
    boxes_xyxy: NDArray[np.float32]  # [N, 4] pixels
    features: NDArray[np.float32]  # [N, F]


class FilePosition(NamedTuple):
    """Where in a file the next photo begins."""

    record: int = 0
    offset: int = 0  # in the unpacked bytes
    bytes_read: int = 0  # of the file on the disk, for progress


def read_tsv(path: Path, start: FilePosition | None = None) -> Iterator[tuple[PhotoFeatures, FilePosition]]:
    """Yield the photos of a file from a position on, each with the position after it."""
    position = start or FilePosition()
    with open_binary(path) as file:
        packed: Any = getattr(file, "fileobj", file)
        file.seek(position.offset)
        lines = io.BufferedReader(cast(Any, file), READ_BYTES)
        try:
            for line in lines:
                photo = _parse_line(f"{path}, record {position.record}", line)
                position = FilePosition(position.record + 1, position.offset + len(line), packed.tell())
                yield photo, position
        finally:
            lines.detach()  # `open_binary` closes the file


def write_tsv(path: Path, photos: Iterable[PhotoFeatures]) -> None:
    """Write photos to a file, gzipped where its name ends in ``.gz``."""
    with atomic_writing(path) as raw:
        # No name and no time in the header: the same photos give the same file.
        packed = gzip.GzipFile("", "wb", 6, raw, mtime=0) if path.suffix == ".gz" else None
        file: Any = packed or raw
        for photo in photos:
            width, height = photo.size_wh
            numbers = f"{photo.image_id}\t{width:g}\t{height:g}\t{len(photo.boxes_xyxy)}\t".encode()
            arrays = (np.ascontiguousarray(array, FLOAT32) for array in (photo.boxes_xyxy, photo.features))
            file.write(numbers + b"\t".join(base64.b64encode(array.tobytes()) for array in arrays) + b"\n")
        if packed is not None:
            packed.close()


def _parse_line(where: str, line: bytes) -> PhotoFeatures:
    values = line.rstrip(b"\r\n").split(b"\t")
    if len(values) != len(COLUMNS):
        raise InputError(
            f"{where}: must have the {len(COLUMNS)} columns {', '.join(COLUMNS)}, but got {len(values)}; "
            "is the file cut short, or no TSV of bottom-up features?"
        )
    image_id, width, height, number = (_number(where, *named) for named in zip(COLUMNS[:4], values[:4], strict=True))
    proposals = int(number)
    if proposals < 1:
        raise InputError(f"{where}: num_boxes must be at least 1, but got {proposals}")
    boxes = _array(where, "boxes", values[4], proposals)
    if boxes.shape[1] != 4:
        raise InputError(f"{where}: boxes must be 4 numbers for each of {proposals}, but got {boxes.shape[1]}")
    ordered = (boxes[:, 2:] >= boxes[:, :2]).all(1)
    if not ordered.all():
        wrong = boxes[int(np.argmin(ordered))].tolist()
        raise InputError(f"{where}: boxes must be x1 y1 x2 y2 with x1 <= x2 and y1 <= y2, but got {wrong}")
    features = _array(where, "features", values[5], proposals)
    if features.shape[1] == 0:
        raise InputError(f"{where}: features must be some numbers for each proposal, but got none")
    return PhotoFeatures(int(image_id), (width, height), boxes, features)


def _number(where: str, name: str, text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {name} must be a number, but got {text[:40].decode('latin-1')!r}") from None
    whole = name in ("image_id", "num_boxes")
    if not np.isfinite(value) or (whole and value != int(value)):
        raise InputError(f"{where}: {name} must be a {'whole' if whole else 'finite'} number, but got {value}")
    return value


def _array(where: str, name: str, text: bytes, proposals: int) -> NDArray[np.float32]:
    """Return `[proposals, numbers per proposal]`."""
    try:
        content = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error as error:
        raise InputError(f"{where}: {name} must be base64, but: {error}") from None
    if len(content) % (FLOAT32.itemsize * proposals):
        raise InputError(
            f"{where}: {name} must be float32 numbers, equally many for each of {proposals} proposals, "
            f"but got {len(content)} bytes; is the line cut short?"
        )
    array = np.frombuffer(content, FLOAT32).reshape(proposals, -1)
    if not np.isfinite(array).all():
        raise InputError(f"{where}: {name} must be finite, but some are not")
    return array
