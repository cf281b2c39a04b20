"""Files of region features in all layouts: find the files, list the ids of their photos, read the photos.

=====================  ============================================================================================
``.tsv``               bottom-up attention's six columns or LXMERT's ten, see `tallybox.vqa.data.features`
folder of ``.npz``     a file for each photo as MCAN and openvqa use them: ``x``, ``bbox``, ``image_w``, ``image_h``
``.h5``                the published code's ``genome-trainval.h5``: padded ``features``, ``boxes``, and ``ids``
``.safetensors``       many photos one after another, the layout that `write_features` writes; also as ``.npz``
=====================  ============================================================================================
"""

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.lib.npyio import NpzFile  # np.load leaves a damaged file open
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import atomic_writing, error_summary, import_optional, open_regular, suffix_without_gz
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

PATTERNS = ("*.tsv*", "*.h5", "*.hdf5", "*.safetensors")  # the public files end in .tsv, .tsv.0, .tsv.1
SAMPLE_BYTES = 1 << 20  # of each end of a file, to recognise it
H5_ROWS = 16  # photos that are read together
PER_PHOTO = ("x", "bbox")  # of an .npz that has one photo
MANY_PHOTOS = ("num_boxes", "sizes_wh", "boxes_xyxy", "features")
# What packages raise where an array is damaged, missing, or of another shape or type than expected.
BROKEN_ARCHIVE = (zipfile.BadZipFile, zlib.error, ValueError, TypeError, IndexError, OSError, EOFError, KeyError)


class _Records(NamedTuple):
    """The ids of an open file's photos, and a function that reads one of them by its number."""

    ids: Sequence[int | str]
    photo: Callable[[int], PhotoFeatures | None]  # None where the file has a place that is not filled


@dataclass(frozen=True)
class FeatureFile:
    """A file of photos, or a folder with an ``.npz`` for each; ``prefix/`` is put before the ids of its photos."""

    path: Path
    prefix: str = ""

    def described(self) -> dict[str, Any]:
        """Return name, size and a sample of the content, so that a changed file is noticed."""
        name = "/".join(self.path.absolute().parts[-2:])  # files of the same name may be in several folders
        return describe_file(self.path) | {"name": name} | ({"prefix": self.prefix} if self.prefix else {})

    def image_ids(self, on_broken: OnBroken = lambda error: None) -> list[str]:
        """Return the ids of the photos, broken records included where their ids can be read."""
        if (opener := self._opener()) is None:
            return [self._prefixed(image_id) for image_id in tsv_ids(self.path, on_broken)]
        with opener(self.path) as records:
            return [self._prefixed(photo_id(image_id)) for image_id in records.ids]

    def photos(
        self, start: FilePosition | None = None, on_broken: OnBroken = raise_broken
    ) -> Iterator[tuple[PhotoFeatures, FilePosition]]:
        """Yield the photos from a position on, each with the position after it."""
        opener = self._opener()
        read = read_tsv if opener is None else partial(_read_records, opener)
        for photo, after in read(self.path, start or FilePosition(), on_broken):
            yield photo._replace(image_id=self._prefixed(photo.image_id)), after

    def _opener(self) -> "_Opener | None":
        return _open_folder if self.path.is_dir() else _OPENERS.get(suffix_without_gz(self.path))

    def _prefixed(self, image_id: str) -> str:
        has_it = not self.prefix or image_id.startswith(f"{self.prefix}/")  # as VG_100K/400.npz gives VG/400
        return image_id if has_it else f"{self.prefix}/{image_id}"


def find_feature_files(path: Path, prefix: str = "") -> list[FeatureFile]:
    """Return the files of features at a path, which is such a file or a folder of them, by name."""
    if not path.is_dir():
        return [FeatureFile(path, prefix)]
    if matching := [file for pattern in PATTERNS for file in _files_in(path, pattern)]:
        return [FeatureFile(file, prefix) for file in sorted(matching)]
    archives = _files_in(path)
    if not archives:
        raise InputError(
            f"{path} must hold files of features ({', '.join(PATTERNS)}, or an .npz for each photo), but there are none"
        )
    if _holds_many(archives[0]):
        return [FeatureFile(file, prefix) for file in archives]
    return [FeatureFile(path, prefix)]


def describe_file(path: Path) -> dict[str, Any]:
    """Return name, size and a checksum of both ends of a file, or of the names and sizes in a folder."""
    try:
        if path.is_dir():
            sizes = [(file.relative_to(path).as_posix(), file.stat().st_size) for file in _files_in(path)]
            size, sample = sum(size for _, size in sizes), json.dumps(sizes).encode()
        else:
            size = path.stat().st_size
            with path.open("rb") as file:
                sample = file.read(SAMPLE_BYTES)
                file.seek(max(0, size - SAMPLE_BYTES))
                sample += file.read()
    except FileNotFoundError:
        raise InputError(f"{path} must be a file, but there is none; check the path") from None
    return {"name": path.name, "bytes": size, "sample": hashlib.sha256(sample).hexdigest()[:16]}


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


def _read_records(
    opener: "_Opener", path: Path, start: FilePosition, on_broken: OnBroken
) -> Iterator[tuple[PhotoFeatures, FilePosition]]:
    size = describe_file(path)["bytes"]
    with ExitStack() as stack:
        try:
            records = stack.enter_context(opener(path))
        except InputError as error:
            on_broken(error)
            return
        for record in range(start.record, len(records.ids)):
            try:
                photo = records.photo(record)
            except InputError as error:
                on_broken(error)
                continue
            except Exception as error:
                if not _is_broken(error):
                    raise
                on_broken(InputError(f"{path}, record {record}: must be readable, but: {error_summary(error)}"))
                continue
            if photo is not None:
                yield photo, FilePosition(record + 1, 0, size * (record + 1) // len(records.ids))


@contextmanager
def _open_folder(folder: Path) -> Iterator[_Records]:
    paths = _files_in(folder)
    names = [path.relative_to(folder).as_posix() for path in paths]
    yield _Records(names, lambda record: _read_npz(paths[record], names[record]))


def _read_npz(path: Path, name: str) -> PhotoFeatures:
    """Read one photo; features may be ``[N, F]``, or ``[F, N]`` as openvqa's are."""
    try:
        with open_regular(path) as raw, NpzFile(raw, allow_pickle=False) as file:  # `info` is pickled and not read
            features, boxes = (np.asarray(file[key]) for key in PER_PHOTO)
            size = [float(file[key].item()) for key in ("image_w", "image_h") if key in file.files]
    except BROKEN_ARCHIVE as error:
        raise InputError(
            f"{path} must be an .npz of one photo with the arrays x and bbox, but: {error_summary(error)}"
        ) from None
    if features.ndim == 2 and boxes.ndim and features.shape[1] == len(boxes):
        features = features.T
    return _photo(str(path), name, size, boxes, features)


@contextmanager
def _open_h5(path: Path) -> Iterator[_Records]:
    package = import_optional("h5py", needed_for=f"reading {path.name}", install="h5py")
    try:
        with package.File(path, "r") as file:
            shapes = {name: file[name].shape for name in ("features", "boxes", "ids") if name in file}
            dimensions = {name: len(shape) for name, shape in shapes.items()}
            if dimensions != {"features": 3, "boxes": 3, "ids": 1} or (
                shapes["boxes"] != (*shapes["ids"], 4, shapes["features"][2])
            ):
                raise InputError(
                    f"{path} must have the arrays features [I, F, N], boxes [I, 4, N] and ids [I] of the published "
                    f"code, but has {shapes or 'none of them'}"
                )
            yield _h5_records(path, file)
    except OSError as error:
        raise InputError(f"{path} must be a whole HDF5 file, but: {error_summary(error)}") from None


def _h5_records(path: Path, file: Any) -> _Records:
    ids = _ids(file["ids"])
    sides = [file[name][()].tolist() for name in ("widths", "heights") if name in file]

    @lru_cache(maxsize=1)
    def rows_from(first: int) -> list[NDArray[Any]]:
        return [file[name][first : first + H5_ROWS] for name in ("features", "boxes")]

    def photo(record: int) -> PhotoFeatures | None:
        where, row = f"{path}, record {record}", record % H5_ROWS
        try:
            features, boxes = (array[row].T for array in rows_from(record - row))  # [N, F], [N, 4]
        except OSError as error:
            raise InputError(f"{where}: must be readable, but: {error_summary(error)}") from None
        used = np.flatnonzero(features.any(1) | boxes.any(1))
        if not len(used) and not ids[record]:
            return None  # the published code reserves more rows than it fills where photos come twice
        number = int(used[-1]) + 1 if len(used) else 0  # the rest is padding
        size_wh = [float(side[record]) for side in sides]
        return _photo(where, ids[record], size_wh, boxes[:number], features[:number])

    return _Records(ids, photo)


@contextmanager
def _open_arrays(path: Path) -> Iterator[_Records]:
    """Open a file of many photos; slices of the arrays of proposals are read when they are needed."""
    try:
        if path.suffix.lower() == ".npz":
            with open_regular(path) as raw, NpzFile(raw, allow_pickle=False) as file:
                yield _as_records(path, _ids(file["image_ids"]), *(file[name] for name in MANY_PHOTOS))
            return
        package = import_optional("safetensors", needed_for=f"reading {path.name}", install="'tallybox[vqa]'")
        with package.safe_open(path, framework="pt") as file:  # NumPy has no bfloat16
            ids = json.loads((file.metadata() or {})["image_ids"])
            yield _as_records(path, ids, *(file.get_slice(name) for name in MANY_PHOTOS))
    except InputError:
        raise
    except Exception as error:
        if not _is_broken(error):
            raise
        raise InputError(
            f"{path} must have image_ids and the arrays {', '.join(MANY_PHOTOS)}, but: {error_summary(error)}"
        ) from None


def _as_records(path: Path, ids: Any, num_boxes: Any, sizes_wh: Any, boxes: Any, features: Any) -> _Records:
    ends = np.cumsum(_as_numpy(num_boxes[:]), dtype=np.int64)
    sizes = _as_numpy(sizes_wh[:]).astype(np.float32)
    proposals = [(array.shape if hasattr(array, "shape") else array.get_shape())[0] for array in (boxes, features)]
    if not isinstance(ids, list) or not len(ids) == len(ends) == len(sizes) or sizes.shape[1:] != (2,):
        raise InputError(
            f"{path}: image_ids, num_boxes [I] and sizes_wh [I, 2] must be of the same photos, but are not"
        )
    if len(ends) and proposals != [ends[-1]] * 2:
        raise InputError(
            f"{path}: boxes_xyxy and features must have {ends[-1]} rows, the sum of num_boxes, but have {proposals}"
        )

    def photo(record: int) -> PhotoFeatures:
        rows = slice(int(ends[record - 1]) if record else 0, int(ends[record]))
        arrays = _as_numpy(boxes[rows]), _as_numpy(features[rows])
        return _photo(f"{path}, record {record}", ids[record], sizes[record].tolist(), *arrays)

    return _Records(ids, photo)


def _ids(array: Any) -> list[int | str]:
    """Return the ids of an array of numbers or texts, which HDF5 and old files have as bytes."""
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in array[()].tolist()]


def _as_numpy(values: Any) -> NDArray[Any]:
    return np.asarray(values.float() if getattr(values, "dtype", None) is torch.bfloat16 else values)


def _is_broken(error: Exception) -> bool:
    """Return whether an error says that a file is broken; SafetensorError has no base class but Exception."""
    return isinstance(error, BROKEN_ARCHIVE) or type(error).__name__ == "SafetensorError"


def _photo(
    where: str, image_id: int | str, size_wh: Sequence[float], boxes: NDArray[Any], features: NDArray[Any]
) -> PhotoFeatures:
    """Check a photo; if its size is unknown, its boxes define it."""
    if len(size_wh) == 2:
        width, height = size_wh
    else:
        are_boxes = boxes.ndim == 2 and boxes.shape[1] == 4 and boxes.dtype.kind in "fiu"
        width, height = boxes[:, 2:].max(0, initial=1).tolist() if are_boxes else (1, 1)
    return checked_photo(where, image_id, (width, height), boxes, features)


def _holds_many(path: Path) -> bool:
    try:
        with open_regular(path) as raw, NpzFile(raw, allow_pickle=False) as file:
            return "image_ids" in file.files
    except BROKEN_ARCHIVE:
        return False  # reading the photo reports it


def _files_in(folder: Path, pattern: str = "*.npz") -> list[Path]:
    return sorted(path for path in folder.rglob(pattern) if path.is_file() and not path.name.startswith("."))


_Opener = Callable[[Path], AbstractContextManager[_Records]]
_OPENERS: dict[str, _Opener] = {
    **dict.fromkeys((".h5", ".hdf5"), _open_h5),
    **dict.fromkeys((".safetensors", ".npz"), _open_arrays),
}
