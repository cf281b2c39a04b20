"""Bottom-up features: a TSV file with one photo per line, its boxes and features in base64, plain or gzipped.

The columns are image_id, image_w, image_h, num_boxes, boxes (`[N, 4]` float32, x1 y1 x2 y2 in pixels) and features
(`[N, F]` float32), or LXMERT's ten, which also name objects and attributes. N is 36 for every photo, or 10 to 100.
"""

import base64
import binascii
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from tallybox.errors import InputError
from tallybox.files import atomic_writing, open_binary
from tallybox.vqa.data.photos import PhotoFeatures, checked_photo

COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
# Where these columns are among six, and among LXMERT's ten: img_id, img_h, img_w, four of objects and attributes, …
PLACES = {6: range(6), 10: (0, 2, 1, 7, 8, 9)}
FLOAT32 = np.dtype("<f4")
READ_BYTES = 1 << 22  # lines are long; smaller reads take three times as long


def read_tsv(path: Path, on_bytes: Callable[[int], None] = lambda done: None) -> Iterator[PhotoFeatures]:
    """Yield the photos of a file; ``on_bytes`` hears how much of the file on the disk was read."""
    with open_binary(path) as file:
        lines = io.BufferedReader(cast(Any, file), READ_BYTES)
        on_disk = getattr(file, "fileobj", file)
        try:
            for record, line in enumerate(iter(lines.readline, b"")):
                yield _parse_line(f"{path}, record {record}", line)
                on_bytes(on_disk.tell())
        finally:
            lines.detach()  # `open_binary` closes the file


def write_tsv(path: Path, photos: Iterable[PhotoFeatures]) -> None:
    """Write photos to a file of six columns."""
    with atomic_writing(path) as file:
        for photo in photos:
            width, height = photo.size_wh
            numbers = f"{photo.image_id}\t{width:g}\t{height:g}\t{len(photo.boxes_xyxy)}\t".encode()
            arrays = (np.ascontiguousarray(array, FLOAT32) for array in (photo.boxes_xyxy, photo.features))
            file.write(numbers + b"\t".join(base64.b64encode(array.tobytes()) for array in arrays) + b"\n")


def _parse_line(where: str, line: bytes) -> PhotoFeatures:
    values = line.rstrip(b"\r\n").split(b"\t")
    if len(values) not in PLACES:
        raise InputError(f"{where}: {len(values)} columns; a TSV of features has {' or '.join(map(str, PLACES))}")
    image_id, *numbers, boxes, features = (values[place] for place in PLACES[len(values)])
    try:
        width, height, proposals = float(numbers[0]), float(numbers[1]), int(numbers[2])
        contents = (binascii.a2b_base64(text, strict_mode=True) for text in (boxes, features))
        arrays = [np.frombuffer(content, FLOAT32).reshape(proposals, -1) for content in contents]
    except ValueError as error:
        wanted = f"{', '.join(COLUMNS[1:4])} must be numbers, boxes and features base64 of float32 for each box"
        raise InputError(f"{where}: {wanted}: {str(error)[:100]}") from None
    return checked_photo(where, image_id.decode("utf-8", "replace"), (width, height), *arrays)
