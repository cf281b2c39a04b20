"""Files of region features in every layout that is read: which there are, the ids in them, and their photos.

=====================  ============================================================================================
``.tsv``               bottom-up attention's six columns or LXMERT's ten, see `tallybox.vqa.data.features`
folder of ``.npz``     a file for each photo as MCAN and openvqa use them: ``x``, ``bbox``, ``image_w``, ``image_h``
``.h5``                the published code's ``genome-trainval.h5``: padded ``features``, ``boxes``, and ``ids``
``.safetensors``       many photos one after another, the layout that `write_features` writes; also as ``.npz``
=====================  ============================================================================================
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile  # np.load leaves a damaged file open
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import atomic_writing, first_line, import_optional, open_regular, suffix_without_gz
from tallybox.vqa.data.features import (
    FilePosition,
    OnBroken,
    PhotoFeatures,
    checked_photo,
    raise_broken,
    read_tsv,
    tsv_ids,
)
from tallybox.vqa.data.photo_ids import photo_id

H5_SUFFIXES = (".h5", ".hdf5")
PATTERNS = ("*.tsv*", "*.h5", "*.hdf5", "*.safetensors")  # the public files end in .tsv, .tsv.0, .tsv.1
SAMPLE_BYTES = 1 << 20  # of each end of a file, to recognise it
H5_ROWS = 16  # photos that are read together
PER_PHOTO = ("x", "bbox")  # of an .npz that has one photo
MANY_PHOTOS = ("num_boxes", "sizes_wh", "boxes_xyxy", "features")
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, KeyError)

Photos = Iterator[tuple[PhotoFeatures, FilePosition]]


@dataclass(frozen=True)
class FeatureFile:
    """A file of photos, or a folder with an ``.npz`` for each; ``prefix/`` is put before the ids of its photos."""

    path: Path
    prefix: str = ""

    def described(self) -> dict[str, Any]:
        """Return name, size and a sample of the content, so that a changed file is noticed."""
        if self.path.is_dir():
            listed = [(path.relative_to(self.path).as_posix(), path.stat().st_size) for path in _files_in(self.path)]
            sample, size = json.dumps(listed).encode(), sum(size for _, size in listed)
        else:
            size, sample = file_sample(self.path)
        name = "/".join(self.path.absolute().parts[-2:])  # files of the same name may be in several folders
        found = {"name": name, "bytes": size, "sample": hashlib.sha256(sample).hexdigest()[:16]}
        return found | ({"prefix": self.prefix} if self.prefix else {})

    def image_ids(self) -> list[str]:
        """Return the ids of the photos, broken records included where their ids can be read."""
        suffix = suffix_without_gz(self.path)
        if self.path.is_dir():
            ids: Iterable[int | str] = (path.relative_to(self.path).as_posix() for path in _files_in(self.path))
        elif suffix in H5_SUFFIXES:
            with _open_h5(self.path) as file:
                ids = file["ids"][()].tolist()
        elif suffix in (".safetensors", ".npz"):
            with _open_arrays(self.path) as arrays:
                ids = arrays.image_ids
        else:
            ids = tsv_ids(self.path)
        return [self._prefixed(photo_id(one)) for one in ids]

    def photos(self, start: FilePosition | None = None, on_broken: OnBroken = raise_broken) -> Photos:
        """Yield the photos from a position on, each with the position after it."""
        suffix, position = suffix_without_gz(self.path), start or FilePosition()
        if self.path.is_dir():
            found = _read_npz_folder(self.path, position, on_broken)
        elif suffix in H5_SUFFIXES:
            found = _read_h5(self.path, position, on_broken)
        elif suffix in (".safetensors", ".npz"):
            found = _read_arrays(self.path, position, on_broken)
        else:
            found = read_tsv(self.path, position, on_broken)
        for photo, after in found:
            yield photo._replace(image_id=self._prefixed(photo.image_id)), after

    def _prefixed(self, image_id: str) -> str:
        return f"{self.prefix}/{image_id}" if self.prefix else image_id


def find_feature_files(path: Path, prefix: str = "") -> list[FeatureFile]:
    """Return the files of features that a path stands for: itself, or those in a folder, by name."""
    if not path.is_dir():
        return [FeatureFile(path, prefix)]
    if inside := [file for pattern in PATTERNS for file in _files_in(path, pattern)]:
        return [FeatureFile(file, prefix) for file in sorted(inside)]
    archives = _files_in(path)
    if not archives:
        raise InputError(
            f"{path} must hold files of features ({', '.join(PATTERNS)}, or an .npz for each photo), but there are none"
        )
    if _holds_many(archives[0]):
        return [FeatureFile(file, prefix) for file in archives]
    return [FeatureFile(path, prefix)]


def file_sample(path: Path) -> tuple[int, bytes]:
    """Return the size of a file and a sample of its content."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            sample = file.read(SAMPLE_BYTES)
            file.seek(max(0, size - SAMPLE_BYTES))
            return size, sample + file.read()
    except FileNotFoundError:
        raise InputError(f"{path} must be a file, but there is none; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{path} must be a file, but it is a folder") from None


def write_features(path: Path, photos: Sequence[PhotoFeatures]) -> None:
    """Write photos to a ``.safetensors`` file in the plain layout, which is described in docs/reference/vqa-data.md."""
    package = import_optional("safetensors.numpy", needed_for=f"writing {path.name}", install="'tallybox[vqa]'")
    arrays = {
        "num_boxes": np.array([len(photo.boxes_xyxy) for photo in photos], np.int64),
        "sizes_wh": np.array([photo.size_wh for photo in photos], np.float32),
        "boxes_xyxy": np.concatenate([photo.boxes_xyxy for photo in photos]),
        "features": np.concatenate([photo.features for photo in photos]),
    }
    with atomic_writing(path) as file:
        file.write(package.save(arrays, {"image_ids": json.dumps([photo.image_id for photo in photos])}))


def _read_npz_folder(folder: Path, start: FilePosition, on_broken: OnBroken) -> Photos:
    read = 0
    for record, path in enumerate(_files_in(folder)):
        read += path.stat().st_size
        if record < start.record:
            continue
        try:
            photo = _read_npz(path, path.relative_to(folder).as_posix())
        except InputError as error:
            on_broken(error)
            continue
        yield photo, FilePosition(record + 1, 0, read)


def _read_npz(path: Path, name: str) -> PhotoFeatures:
    """Read one photo; features may be ``[N, F]``, or ``[F, N]`` as openvqa's are."""
    try:
        with open_regular(path) as raw, NpzFile(raw, allow_pickle=False) as file:  # `info` is pickled and not read
            features, boxes = (np.asarray(file[key]) for key in PER_PHOTO)
            size = [float(file[key]) for key in ("image_w", "image_h") if key in file.files]
    except BROKEN_ARCHIVE as error:
        raise InputError(
            f"{path} must be an .npz of one photo with the arrays x and bbox, but: {first_line(error)}"
        ) from None
    if features.ndim == 2 and features.shape[1] == len(boxes):
        features = features.T
    width, height = size if len(size) == 2 else boxes.reshape(-1, 4)[:, 2:].max(0, initial=1)
    return checked_photo(str(path), name, (width, height), boxes, features)


@contextmanager
def _open_h5(path: Path) -> Iterator[Any]:
    package = import_optional("h5py", needed_for=f"reading {path.name}", install="h5py")
    try:
        with package.File(path, "r") as file:
            shapes = {name: file[name].shape for name in ("features", "boxes", "ids") if name in file}
            photos = shapes.get("ids", (0,))[0]
            if {name: len(shape) for name, shape in shapes.items()} != {"features": 3, "boxes": 3, "ids": 1} or shapes[
                "boxes"
            ] != (photos, 4, shapes["features"][2]):
                raise InputError(
                    f"{path} must have the arrays features [I, F, N], boxes [I, 4, N] and ids [I] of the published "
                    f"code, but has {shapes or 'none of them'}"
                )
            yield file
    except OSError as error:
        raise InputError(f"{path} must be a whole HDF5 file, but: {first_line(error)}") from None


def _read_h5(path: Path, start: FilePosition, on_broken: OnBroken) -> Photos:
    size = path.stat().st_size
    with _open_h5(path) as file:
        ids, total = file["ids"][()], len(file["ids"])
        sizes = [file[name][()] for name in ("widths", "heights") if name in file]
        for first in range(start.record, total, H5_ROWS):
            some = slice(first, min(first + H5_ROWS, total))
            try:
                features, boxes = (file[name][some] for name in ("features", "boxes"))
            except OSError as error:
                message = f"{path}, records {some.start} to {some.stop - 1}: must be readable, but: {first_line(error)}"
                on_broken(InputError(message))
                continue
            for row, record in enumerate(range(some.start, some.stop)):
                used = np.flatnonzero(features[row].any(0) | boxes[row].any(0))
                if not len(used) and not ids[record]:
                    continue  # the published code reserves more rows than it fills where photos come twice
                number = int(used[-1]) + 1 if len(used) else 0  # the rest is padding
                own = boxes[row, :, :number].T
                wh = [float(one[record]) for one in sizes] or own[:, 2:].max(0, initial=1).tolist()
                try:
                    photo = checked_photo(
                        f"{path}, record {record}", str(ids[record]), (wh[0], wh[1]), own, features[row, :, :number].T
                    )
                except InputError as error:
                    on_broken(error)
                    continue
                yield photo, FilePosition(record + 1, 0, size * (record + 1) // total)


@dataclass(frozen=True)
class _Arrays:
    """The arrays of many photos; those of proposals are read as far as they are sliced."""

    image_ids: list[int | str]
    ends: NDArray[np.int64]  # [I] where each photo's proposals end
    sizes_wh: NDArray[np.float32]  # [I, 2]
    boxes_xyxy: Any  # [R, 4]
    features: Any  # [R, F]


@contextmanager
def _open_arrays(path: Path) -> Iterator[_Arrays]:
    try:
        if path.suffix.lower() == ".npz":
            with open_regular(path) as raw, NpzFile(raw, allow_pickle=False) as file:
                yield _as_arrays(path, file["image_ids"].tolist(), {name: file[name] for name in MANY_PHOTOS})
            return
        package = import_optional("safetensors", needed_for=f"reading {path.name}", install="'tallybox[vqa]'")
        with package.safe_open(path, framework="np") as file:
            ids = json.loads((file.metadata() or {})["image_ids"])
            slices = {name: file.get_slice(name) for name in MANY_PHOTOS}
            yield _as_arrays(path, ids, slices)
    except InputError:
        raise
    except Exception as error:  # safetensors' own error is no subclass of anything
        if type(error).__name__ != "SafetensorError" and not isinstance(error, BROKEN_ARCHIVE):
            raise
        raise InputError(
            f"{path} must have image_ids and the arrays {', '.join(MANY_PHOTOS)}, but: {first_line(error)}"
        ) from None


def _as_arrays(path: Path, image_ids: Any, arrays: dict[str, Any]) -> _Arrays:
    ends = np.cumsum(np.asarray(arrays["num_boxes"][:], np.int64))
    sizes = np.asarray(arrays["sizes_wh"][:], np.float32)
    rows = [(array.shape if hasattr(array, "shape") else array.get_shape())[0] for array in list(arrays.values())[2:]]
    if not isinstance(image_ids, list) or not len(image_ids) == len(ends) == len(sizes) or sizes.shape[1:] != (2,):
        raise InputError(
            f"{path}: image_ids, num_boxes [I] and sizes_wh [I, 2] must be of the same photos, but are not"
        )
    if len(ends) and rows != [ends[-1]] * 2:
        raise InputError(
            f"{path}: boxes_xyxy and features must have {ends[-1]} rows, the sum of num_boxes, but have {rows}"
        )
    return _Arrays(image_ids, ends, sizes, arrays["boxes_xyxy"], arrays["features"])


def _read_arrays(path: Path, start: FilePosition, on_broken: OnBroken) -> Photos:
    size = path.stat().st_size
    with _open_arrays(path) as arrays:
        total = len(arrays.image_ids)
        for record in range(start.record, total):
            rows = slice(int(arrays.ends[record - 1]) if record else 0, int(arrays.ends[record]))
            boxes, features = (np.asarray(array[rows]) for array in (arrays.boxes_xyxy, arrays.features))
            width, height = arrays.sizes_wh[record].tolist()
            where = f"{path}, record {record}"
            try:
                photo = checked_photo(where, arrays.image_ids[record], (width, height), boxes, features)
            except InputError as error:
                on_broken(error)
                continue
            yield photo, FilePosition(record + 1, 0, size * (record + 1) // total)


def _holds_many(path: Path) -> bool:
    try:
        with open_regular(path) as raw, NpzFile(raw, allow_pickle=False) as file:
            return "image_ids" in file.files
    except BROKEN_ARCHIVE:
        return False  # reading the photo reports it


def _files_in(folder: Path, pattern: str = "*.npz") -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file() and not path.name.startswith("."))
