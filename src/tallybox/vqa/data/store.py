"""Photos' features on the disk: bottom-up attention's TSV files, the plain layout, and the store, a folder of that.

docs/reference/vqa-data.md describes both layouts. The store of a prepared folder has a file in the plain layout, which
is memory-mapped, for each file of features it was made from.
"""

import base64
import binascii
import io
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import atomic_writing, error_summary, open_binary, read_safetensors

PHOTOS = "photos"  # the store of a prepared folder
# The arrays of a file, with their dtypes in safetensors and NumPy.
ARRAYS = {
    "num_boxes": ("I64", "<i8"),
    "sizes_wh": ("F32", "<f4"),
    "boxes_xyxy": ("F32", "<f4"),
    "features": ("F16", "<f2"),
}
COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
# Where these columns are among six, and among LXMERT's ten: img_id, img_h, img_w, four of objects and attributes, …
PLACES = {6: range(6), 10: (0, 2, 1, 7, 8, 9)}
FLOAT32 = np.dtype("<f4")
READ_BYTES = 1 << 22  # lines are long; smaller reads take three times as long
COCO_NAME = re.compile(r"(?:.*/)?COCO_(?:train|val|test)\d{4}_(\d+)(?:\.jpg)?(?:\.npz)?")
VISUAL_GENOME_NAME = re.compile(r"(?:.*/)?VG_100K(?:_2)?/(\d+)(?:\.jpg)?(?:\.npz)?")
SUFFIX = re.compile(r"\.(?:jpe?g|png|webp|gif|bmp|tiff?)$", re.IGNORECASE)
MAX_FEATURE = float(np.finfo(np.float16).max)  # features are stored in half precision


class PhotoFeatures(NamedTuple):
    """The N proposals of one photo with F features each."""

    image_id: str  # as `photo_id` writes it
    size_wh: tuple[float, float]
    boxes_xyxy: NDArray[np.float32]  # [N, 4] pixels
    features: NDArray[np.floating]  # [N, F]


def photo_id(value: int | str) -> str:
    """Return a photo's id as text: a number without leading zeros for COCO's names, ``VG/number`` for Visual Genome's.

    Other names stay as they are, without the suffix of a photo.
    """
    text = str(value).strip()
    if match := COCO_NAME.fullmatch(text):
        return str(int(match[1]))
    if match := VISUAL_GENOME_NAME.fullmatch(text):
        return f"VG/{int(match[1])}"
    plain = SUFFIX.sub("", text.removesuffix(".npz"))
    return str(int(plain)) if plain.isascii() and plain.isdigit() else plain


def checked_photo(
    where: str, image_id: int | str, size_wh: tuple[float, float], boxes: NDArray[Any], features: NDArray[Any]
) -> PhotoFeatures:
    """Return a photo of ``boxes [N, 4]`` and ``features [N, F]``; raise if a value is wrong."""
    if not str(image_id).strip():
        raise InputError(f"{where}: image_id is empty")
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not len(boxes):
        raise InputError(f"{where}: boxes have shape {list(boxes.shape)}, expected [N, 4] with at least one box")
    if features.ndim != 2 or len(features) != len(boxes) or not features.shape[1]:
        raise InputError(f"{where}: features {list(features.shape)} do not fit {len(boxes)} boxes")
    for name, array in (("boxes", boxes), ("features", features), ("image size", np.array(size_wh))):
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise InputError(f"{where}: {name} must be finite numbers")
    if np.abs(features).max() > MAX_FEATURE:
        raise InputError(f"{where}: features exceed {MAX_FEATURE:g}, the limit of half precision")
    ordered = (boxes[:, 2:] >= boxes[:, :2]).all(1)
    if not ordered.all():
        raise InputError(f"{where}: boxes must be x1 y1 x2 y2, but got {boxes[int(np.argmin(ordered))].tolist()}")
    width, height = size_wh
    return PhotoFeatures(photo_id(image_id), (float(width), float(height)), boxes.astype("<f4", copy=False), features)


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


def write_features(path: Path, photos: Iterable[PhotoFeatures]) -> None:
    """Write photos to a file in the plain layout, atomically; features are copied through a temporary file."""
    described: list[tuple[str, tuple[float, float], NDArray[np.float32]]] = []  # the photos without their features
    width = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=path.parent) as spooled:
        for photo in photos:
            width = width or photo.features.shape[1]
            if photo.features.shape[1] != width:
                raise InputError(f"photo {photo.image_id} has {photo.features.shape[1]} features, others {width}")
            described.append(photo[:3])
            spooled.write(np.ascontiguousarray(photo.features, ARRAYS["features"][1]).tobytes())
        if not described:
            raise InputError(f"{path.name}: no photo could be read")
        ids, sizes_wh, boxes = zip(*described, strict=True)
        values = {"num_boxes": [*map(len, boxes)], "sizes_wh": sizes_wh, "boxes_xyxy": np.concatenate(boxes)}
        arrays = {name: np.asarray(value, ARRAYS[name][1]) for name, value in values.items()}
        shapes = {name: array.shape for name, array in arrays.items()}
        shapes["features"] = (len(arrays["boxes_xyxy"]), width)
        with atomic_writing(path) as file:
            file.write(_header(shapes, ids))
            file.writelines(array.tobytes() for array in arrays.values())
            spooled.seek(0)
            shutil.copyfileobj(spooled, file, 1 << 24)


def _header(shapes: dict[str, tuple[int, ...]], ids: Sequence[str]) -> bytes:
    """Return the header of a safetensors file: its length in 8 bytes, then JSON."""
    entries: dict[str, Any] = {"__metadata__": {"image_ids": json.dumps(ids)}}
    end = 0
    for name, shape in shapes.items():
        kind, dtype = ARRAYS[name]
        start, end = end, end + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _read_arrays(path: Path) -> tuple[list[str], list[NDArray[Any]]]:
    """Return the ids and the arrays, memory-mapped and in the order of `ARRAYS`, of a file in the plain layout."""
    try:
        metadata, tensors = read_safetensors(path)
        ids = [str(image_id) for image_id in json.loads(metadata["image_ids"])]
        chosen = [tensors[name] for name in ARRAYS]
        arrays = [(one.float() if one.dtype == torch.bfloat16 else one).numpy() for one in chosen]  # NumPy lacks it
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} has no image_ids and arrays {', '.join(ARRAYS)}: {error_summary(error)}") from None
    proposals = int(arrays[0].sum())
    shapes = [(len(ids),), (len(ids), 2), (proposals, 4), (proposals, *arrays[3].shape[1:2])]
    if [array.shape for array in arrays] != shapes:
        raise InputError(f"{path}: the shapes of its arrays do not fit {len(ids)} image_ids and the sum of num_boxes")
    return ids, arrays


def read_features(path: Path) -> Iterator[PhotoFeatures]:
    """Yield the photos of a file in the plain layout."""
    store = FeatureStore.of([path])
    for row, image_id in enumerate(store.image_ids):
        width, height = store.sizes_wh[row].tolist()
        values = store.boxes_of(row), store.features_of(row)
        yield checked_photo(f"{path}, record {row}", image_id, (width, height), *values)


@dataclass(frozen=True, eq=False)
class FeatureStore:
    """Proposals of I photos, P in all, with F features each; open one with `FeatureStore.open`.

    If files share a photo, the first file's is used.
    """

    image_ids: Sequence[str]  # [I]
    sizes_wh: NDArray[np.float32]  # [I, 2] pixels
    offsets: NDArray[np.int64]  # [I + 1] first proposal of each photo
    boxes_xyxy: NDArray[np.float32]  # [P, 4] pixels
    features: Sequence[NDArray[np.float16]]  # [P, F] in parts, one for each file

    @classmethod
    def open(cls, folder: Path) -> "FeatureStore":
        """Open a folder of files; features are read when they are needed."""
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            raise InputError(f"{folder} has no features; run tallybox vqa prepare")
        return cls.of(paths)

    @classmethod
    def of(cls, paths: Sequence[Path]) -> "FeatureStore":
        """Open files in the plain layout, at least one."""
        ids, arrays = zip(*map(_read_arrays, paths), strict=True)
        num_boxes, sizes_wh, boxes_xyxy, features = zip(*arrays, strict=True)
        widths = {part.shape[1]: path.name for path, part in zip(paths, features, strict=True)}
        if len(widths) > 1:
            raise InputError(f"Files of {paths[0].parent} differ in their numbers of features; delete some: {widths}")
        offsets = np.concatenate([[0], *num_boxes]).cumsum()
        return cls([*chain(*ids)], np.concatenate(sizes_wh), offsets, np.concatenate(boxes_xyxy), features)

    @property
    def width(self) -> int:
        """The number of features of a proposal."""
        return int(self.features[0].shape[1])

    @property
    def num_boxes(self) -> NDArray[np.int64]:
        """The number of proposals of each photo, ``[I]``."""
        return np.diff(self.offsets)

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row of each photo by its id."""
        return {image_id: row for row, image_id in reversed([*enumerate(self.image_ids)])}

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The file of each photo and its first proposal there, ``[I]`` each."""
        starts = np.cumsum([0, *map(len, self.features)])
        files = np.searchsorted(starts, self.offsets[:-1], side="right") - 1
        return files, self.offsets[:-1] - starts[files]

    def rows_of(self, image_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return the rows of photos, ``[B]``."""
        if missing := sorted({image_id for image_id in image_ids if image_id not in self.row_of}):
            raise InputError(f"The store lacks {len(missing)} photos, among them {missing[0]}.")
        return np.array([self.row_of[image_id] for image_id in image_ids], np.int64)

    def features_of(self, row: int) -> NDArray[np.float16]:
        """Return the features of a photo's proposals, ``[N, F]``."""
        file, first = (int(places[row]) for places in self._places)
        return self.features[file][first : first + int(self.offsets[row + 1] - self.offsets[row])]

    def boxes_of(self, row: int) -> NDArray[np.float32]:
        """Return the boxes of a photo's proposals, ``[N, 4]``."""
        return self.boxes_xyxy[self.offsets[row] : self.offsets[row + 1]]

    def read_into(
        self, rows: NDArray[np.int64], features: NDArray[np.float16], boxes_xyxy: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        """Fill ``features [B, N, F]`` and ``boxes_xyxy [B, N, 4]`` with the proposals of photos, padded with zeros.

        Returns the mask ``[B, N]``, True for a real proposal.
        """
        numbers = self.num_boxes[rows]
        places = (values[rows].tolist() for values in (*self._places, self.offsets))
        for place, (number, file, first, start) in enumerate(zip(numbers.tolist(), *places, strict=True)):
            features[place, :number] = self.features[file][first : first + number]
            boxes_xyxy[place, :number] = self.boxes_xyxy[start : start + number]
            features[place, number:], boxes_xyxy[place, number:] = 0, 0
        mask: NDArray[np.bool_] = np.arange(features.shape[1]) < numbers[:, None]
        return mask
