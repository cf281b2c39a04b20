"""Bottom-up features: a TSV file with one photo per line, its boxes and features in base64, plain or gzipped.

The columns are image_id, image_w, image_h, num_boxes, boxes (`[N, 4]` float32, x1 y1 x2 y2 in pixels) and features
(`[N, F]` float32), or LXMERT's ten, which also name objects and attributes. N is 36 for every photo, or 10 to 100.
"""

import base64
import binascii
import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import atomic_writing, open_binary
from tallybox.vqa.data.photo_ids import photo_id

COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
# Where these columns are among six, and among LXMERT's ten: img_id, img_h, img_w, four of objects and attributes, …
PLACES = {6: range(6), 10: (0, 2, 1, 7, 8, 9)}
FLOAT32 = np.dtype("<f4")
BEGINNING = 1 << 10  # bytes of a line in which its first columns are
# How many features other than 0 tell float16 from float32, and over how many powers of 2 may 80 % of them spread: of
# features made up in nine ways, float16 read as float32 spread over 25 to 129, float32 over 11, or over 30 (a softmax).
MIN_CHECKED, MAX_SPREAD = 500, 20.0
READ_BYTES = 1 << 22  # lines are long; smaller reads take three times as long


class PhotoFeatures(NamedTuple):
    """The N proposals of one photo with F features each."""

    image_id: str  # as `photo_id` writes it
    size_wh: tuple[float, float]
    boxes_xyxy: NDArray[np.float32]  # [N, 4] pixels
    features: NDArray[np.floating]  # [N, F]


class FilePosition(NamedTuple):
    """Where in a file the next photo begins."""

    record: int = 0
    offset: int = 0  # in the unpacked bytes
    bytes_read: int = 0  # of the file on the disk, for progress


OnBroken = Callable[[InputError], None]  # called for a record that cannot be read, which is then skipped


def raise_broken(error: InputError) -> None:
    """Raise the error of a broken record."""
    raise error


def read_tsv(
    path: Path, start: FilePosition | None = None, on_broken: OnBroken = raise_broken
) -> Iterator[tuple[PhotoFeatures, FilePosition]]:
    """Yield the photos of a file from a position on, each with the position after it.

    A file of float16 numbers is an error that ``on_broken`` does not hear of: each of its records would be wrong.
    """
    position = start or FilePosition()
    with ExitStack() as stack:
        try:
            lines, packed = stack.enter_context(_lines(path, position.offset))
        except InputError as error:
            on_broken(error)
            return
        is_checked = False
        while line := _next_line(path, lines, on_broken):
            where = f"{path}, record {position.record}"
            position = FilePosition(position.record + 1, position.offset + len(line), packed.tell())
            try:
                photo = _parse_line(where, line)
            except InputError as error:
                on_broken(error)
                continue
            if not is_checked:
                _check_precision(where, photo.features)
                is_checked = True
            yield photo, position


def tsv_ids(path: Path, on_broken: OnBroken = lambda error: None) -> Iterator[str]:
    """Yield the ids of a file's photos, the first column, without decoding the others.

    ``on_broken`` hears of a file that seems cut short, or has lines that are no records.
    """
    number = wrong = 0
    last = b"\n"
    with _lines(path, 0) as (lines, _):
        while line := _next_line(path, lines, on_broken):
            number, last = number + 1, line[-1:]
            wrong += not _begins_like_record(line)
            if (end := line.find(b"\t")) > 0:
                yield photo_id(line[:end].decode("utf-8", "replace"))
    if wrong:
        on_broken(InputError(f"{path}: {wrong} of its {number} lines are no records of features"))
    if last != b"\n":
        on_broken(InputError(f"{path}: its last line has no end; is the file cut short?"))


def write_tsv(path: Path, photos: Iterable[PhotoFeatures]) -> None:
    """Write photos to a file, gzipped where its name ends in ``.gz``."""
    with ExitStack() as stack:
        file: Any = stack.enter_context(atomic_writing(path))
        if path.suffix == ".gz":  # no name and no time in the header: the same photos give the same file
            file = stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
        for photo in photos:
            width, height = photo.size_wh
            numbers = f"{photo.image_id}\t{width:g}\t{height:g}\t{len(photo.boxes_xyxy)}\t".encode()
            arrays = (np.ascontiguousarray(array, FLOAT32) for array in (photo.boxes_xyxy, photo.features))
            file.write(numbers + b"\t".join(base64.b64encode(array.tobytes()) for array in arrays) + b"\n")


def checked_photo(
    where: str, image_id: int | str, size_wh: tuple[float, float], boxes: NDArray[Any], features: NDArray[Any]
) -> PhotoFeatures:
    """Return a photo of ``boxes [N, 4]`` and ``features [N, F]``, or raise what is wrong with it."""
    if not str(image_id).strip():
        raise InputError(f"{where}: image_id must be a number or a name, but it is empty")
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not len(boxes):
        raise InputError(f"{where}: boxes must be 4 numbers for each of at least one, but got {list(boxes.shape)}")
    if features.ndim != 2 or len(features) != len(boxes) or not features.shape[1]:
        raise InputError(
            f"{where}: features must be some numbers for each of {len(boxes)} boxes, but got {list(features.shape)}"
        )
    for name, array in (("boxes", boxes), ("features", features), ("size", np.array(size_wh))):
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise InputError(f"{where}: {name} must be finite numbers, but some are not")
    ordered = (boxes[:, 2:] >= boxes[:, :2]).all(1)
    if not ordered.all():
        wrong = boxes[int(np.argmin(ordered))].tolist()
        raise InputError(f"{where}: boxes must be x1 y1 x2 y2 with x1 <= x2 and y1 <= y2, but got {wrong}")
    width, height = size_wh
    return PhotoFeatures(photo_id(image_id), (float(width), float(height)), boxes.astype(FLOAT32, copy=False), features)


@contextmanager
def _lines(path: Path, offset: int) -> Iterator[tuple[io.BufferedReader, BinaryIO]]:
    """Open a file's lines from an offset on, and the file on the disk, whose position is for progress."""
    with open_binary(path) as file:
        file.seek(offset)
        if zipfile.is_zipfile(path):
            raise InputError(f"{path} must be a TSV of features, but it is a zip archive; unpack it first")
        lines = io.BufferedReader(cast(Any, file), READ_BYTES)
        try:
            yield lines, getattr(file, "fileobj", file)
        finally:
            lines.detach()  # `open_binary` closes the file


def _next_line(path: Path, lines: io.BufferedReader, on_broken: OnBroken) -> bytes:
    """Return the next line; none where the rest of a gzip file cannot be unpacked."""
    try:
        return lines.readline()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        on_broken(InputError(f"{path} must be a whole gzip file, but it is cut short or damaged: {error}"))
        return b""


def _begins_like_record(line: bytes) -> bool:
    """Return whether a line begins with an id and two sides; how it goes on, reading the photo reports."""
    columns = line[:BEGINNING].split(b"\t", 3)
    try:
        return len(columns) == 4 and float(columns[1]) > 0 and float(columns[2]) > 0
    except ValueError:
        return False


def _parse_line(where: str, line: bytes) -> PhotoFeatures:
    values = line.rstrip(b"\r\n").split(b"\t")
    if len(values) not in PLACES:
        raise InputError(
            f"{where}: must have the {len(COLUMNS)} columns {', '.join(COLUMNS)} or LXMERT's {max(PLACES)}, "
            f"but got {len(values)}; is the file cut short, or no TSV of bottom-up features?"
        )
    image_id, *numbers, boxes_text, features_text = (values[place] for place in PLACES[len(values)])
    try:
        width, height, proposals = float(numbers[0]), float(numbers[1]), int(numbers[2])
    except ValueError as error:
        raise InputError(f"{where}: {', '.join(COLUMNS[1:4])} must be numbers, but: {str(error)[:100]}") from None
    if proposals < 1:
        raise InputError(f"{where}: num_boxes must be at least 1, but got {proposals}")
    boxes = _array(where, "boxes", boxes_text, proposals)
    features = _array(where, "features", features_text, proposals)
    return checked_photo(where, image_id.decode("utf-8", "replace"), (width, height), boxes, features)


def _check_precision(where: str, features: NDArray[Any]) -> None:
    """Raise where float32 numbers are pairs of float16 numbers, which would give half as many, of any size.

    Pairs are finite as float16, which the lower bits of many float32 numbers are not, and a factor of 2 between float16
    numbers is one of 256 between pairs. Numbers that were rounded to bfloat16 have no lower bits.
    """
    values = features[features != 0].astype(FLOAT32)
    halves = values.view("<f2").reshape(-1, 2)
    if len(values) < MIN_CHECKED or not halves[:, 0].any() or not np.isfinite(halves).all():
        return
    low, high = np.quantile(np.log2(np.abs(values.astype(np.float64))), (0.1, 0.9))
    if high - low > MAX_SPREAD:
        raise InputError(
            f"{where}: features must be float32, but {features.shape[1]} a proposal look like {2 * features.shape[1]} "
            "of float16; write the file in float32"
        )


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
    return np.frombuffer(content, FLOAT32).reshape(proposals, -1)
