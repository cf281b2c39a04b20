"""Convert VQA features from HDF5 or NumPy files to the plain safetensors layout that `tallybox vqa prepare` reads.

    python examples/vqa_converters/features.py genome-trainval.h5 --out features.safetensors
    python examples/vqa_converters/features.py npz-folder --features-axis last --out features.safetensors
    python examples/vqa_converters/features.py visual-genome.tsv --prefix VG --out features.safetensors

=================  ==================================================================================================
``.h5``            the published code's ``genome-trainval.h5``: padded ``features``, ``boxes``, and ``ids``; needs h5py
folder of ``.npz`` a file for each photo as MCAN and openvqa use them: ``x``, ``bbox``, ``image_w``, ``image_h``
``.npz``           many photos: ``image_ids``, ``num_boxes``, ``sizes_wh``, ``boxes_xyxy``, ``features`` (or ``scores``)
``.tsv``           as `tallybox vqa prepare` reads it, to put a prefix before the ids (Visual Genome's: VG)
=================  ==================================================================================================
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tallybox.errors import InputError
from tallybox.files import error_summary, import_optional
from tallybox.vqa.data.store import PhotoFeatures, checked_photo, read_tsv, write_features

H5_ROWS = 16  # photos that are read together


def main() -> None:
    """Convert a file or a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="a .safetensors file")
    parser.add_argument("--prefix", default="", help="put before the ids, as in VG/400")
    parser.add_argument(
        "--features-axis", choices=["first", "last"], help="of x in .npz files, if as many proposals as features"
    )
    given = parser.parse_args()
    try:
        photos = read_photos(given.source, given.features_axis)
        write_features(given.out, (with_prefix(photo, given.prefix) for photo in photos))
    except (InputError, OSError) as error:
        sys.exit(f"Error: {error_summary(error)}")
    print(f"next: tallybox vqa prepare QUESTIONS --features {given.out} --out PREPARED")


def with_prefix(photo: PhotoFeatures, prefix: str) -> PhotoFeatures:
    """Put a prefix before a photo's id, unless it has it."""
    has_it = not prefix or photo.image_id.startswith(f"{prefix}/")
    return photo if has_it else photo._replace(image_id=f"{prefix}/{photo.image_id}")


def read_photos(source: Path, features_axis: str | None = None) -> Iterator[PhotoFeatures]:
    """Yield the photos of a file or a folder; a damaged file is one `InputError`."""
    if source.is_dir():
        paths = sorted(source.rglob("*.npz"))
        if not paths:
            raise InputError(f"{source} has no .npz files")
        for path in paths:
            yield read_npz(path, path.relative_to(source).as_posix(), features_axis)
    elif source.suffix.lower() in (".h5", ".hdf5"):
        yield from read_h5(source)
    elif source.suffix.lower() == ".npz":
        yield from read_many(source)
    else:
        yield from read_tsv(source)


def read_npz(path: Path, name: str, features_axis: str | None = None) -> PhotoFeatures:
    """Read one photo; ``x`` is ``[N, F]``, or ``[F, N]`` as openvqa's is."""
    file = load_npz(path, ("x", "bbox"))
    features, boxes = file["x"], file["bbox"]
    if features.ndim == 2 and features.shape == (len(boxes), len(boxes)) and features_axis is None:
        raise InputError(f"{path} has as many proposals as features; say which axis with --features-axis first|last")
    is_first = features_axis == "first" or (features_axis is None and features.shape[-1] == len(boxes))
    if features.ndim == 2 and is_first:
        features = features.T
    if "image_w" in file and "image_h" in file:
        size_wh = float(file["image_w"].item()), float(file["image_h"].item())
    else:
        size_wh = size_of(boxes)
    return checked_photo(str(path), name, size_wh, boxes, features)


def read_many(path: Path) -> Iterator[PhotoFeatures]:
    """Yield the photos of a file of many."""
    file = load_npz(path, ("image_ids", "num_boxes", "sizes_wh", "boxes_xyxy"))
    features = file.get("features", file.get("scores"))
    if features is None:
        raise InputError(f"{path} has neither features nor scores")
    ends = np.cumsum(file["num_boxes"])
    if not len(ends) == len(file["image_ids"]) == len(file["sizes_wh"]) or not (
        len(file["boxes_xyxy"]) == len(features) == (ends[-1] if len(ends) else 0)
    ):
        raise InputError(f"{path}: its arrays are not of the same photos")
    for record, image_id in enumerate(file["image_ids"].tolist()):
        rows = slice(int(ends[record] - file["num_boxes"][record]), int(ends[record]))
        size_wh = tuple(file["sizes_wh"][record].tolist())
        yield checked_photo(f"{path}, record {record}", image_id, size_wh, file["boxes_xyxy"][rows], features[rows])


def load_npz(path: Path, needed: tuple[str, ...]) -> dict[str, Any]:
    """Return the arrays of a file except pickled ones, or raise what is wrong with it."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name != "info"}  # which is pickled in MCAN's
    except Exception as error:  # numpy, zipfile and zlib raise all sorts of errors on damaged files
        raise InputError(f"{path} is not a valid .npz file: {error_summary(error)}") from None
    if missing := [name for name in needed if name not in arrays]:
        raise InputError(f"{path} has no array {missing[0]}, only {', '.join(arrays) or 'none'}")
    return arrays


def read_h5(path: Path) -> Iterator[PhotoFeatures]:
    """Yield the photos of a file of the published code; links and storage outside of it are refused."""
    h5py = import_optional("h5py", needed_for=f"reading {path.name}", install="h5py")
    try:
        with h5py.File(path, "r") as file:
            yield from h5_photos(path, {name: own_dataset(path, file, name, h5py) for name in file})
    except InputError:
        raise
    except Exception as error:  # h5py raises all sorts of errors on damaged files
        raise InputError(f"{path} is not a valid HDF5 file: {error_summary(error)}") from None


def own_dataset(path: Path, file: Any, name: str, h5py: Any) -> Any:
    """Return an array that is stored in the file itself: an external one could be any file of the machine."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise InputError(f"{path}: {name} is a link to somewhere else, which is not followed")
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset):
        return None
    if dataset.external or dataset.is_virtual:
        raise InputError(f"{path}: {name} is stored in another file, which is not read")
    return dataset


def h5_photos(path: Path, file: dict[str, Any]) -> Iterator[PhotoFeatures]:
    """Yield the photos of the arrays ``features [I, F, N]``, ``boxes [I, 4, N]`` and ``ids [I]``."""
    shapes = {name: file[name].shape for name in ("features", "boxes", "ids") if file.get(name) is not None}
    if [len(shape) for shape in shapes.values()] != [3, 3, 1] or (
        shapes["boxes"] != (*shapes["ids"], 4, shapes["features"][2]) or shapes["features"][0] != shapes["ids"][0]
    ):
        raise InputError(f"{path} must have features [I, F, N], boxes [I, 4, N] and ids [I], but has {shapes}")
    ids = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in file["ids"][()].tolist()]
    sides = [file[name][()].tolist() for name in ("widths", "heights") if file.get(name) is not None]
    for first in range(0, len(ids), H5_ROWS):
        blocks = [file[name][first : first + H5_ROWS] for name in ("features", "boxes")]
        for row, (features, boxes) in enumerate(zip(*(block.swapaxes(1, 2) for block in blocks), strict=True), first):
            used = np.flatnonzero(features.any(1) | boxes.any(1))
            if not len(used) and not ids[row]:
                continue  # the published code reserves more rows than it fills if photos come twice
            number = int(used[-1]) + 1 if len(used) else 0  # the rest is padding
            size_wh = (float(sides[0][row]), float(sides[1][row])) if len(sides) == 2 else size_of(boxes)
            yield checked_photo(f"{path}, record {row}", ids[row], size_wh, boxes[:number], features[:number])


def size_of(boxes: Any) -> tuple[float, float]:
    """Return the size of a photo whose size is not known: of its boxes."""
    width, height = boxes.reshape(-1, 4)[:, 2:].max(0, initial=1).tolist() if boxes.size % 4 == 0 else (1, 1)
    return width, height


if __name__ == "__main__":
    main()
