"""Time loading photos in random order: the feature store beside a padded float32 HDF5 file.

    python benchmarks/vqa_loading.py     # JSON; needs h5py; about a minute on two cores

Photos have the paper's size (10 to 100 proposals of 2,048 features). Both files are in the page cache, so that copying
is measured and not the disk. HDF5 is read one photo at a time like in the published code, which looks up its arrays by
name for every photo, and with open arrays; both stack the photos to a batch.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.measure import BenchRow, median_ms, peak_bytes, report
from numpy.typing import NDArray

from tallybox.errors import TallyboxError
from tallybox.files import import_optional
from tallybox.vqa.data.photos import PhotoFeatures
from tallybox.vqa.data.store import FeatureStore, write_features

PHOTOS = 256
BATCH = 64
PROPOSALS = (10, 100)
FEATURES = 2048
TURNS = 5


def bench_vqa_loading(seconds: float = 2.0, photos: int = PHOTOS) -> Iterator[BenchRow]:
    """Yield rows for batches of photos with 10 to 100 proposals, and with 36 each."""
    h5py = import_optional("h5py", needed_for="the HDF5 file", install="h5py")
    for name, fewest, most in (("10 to 100", *PROPOSALS), ("36", 36, 36)):
        with tempfile.TemporaryDirectory() as folder:
            made = _made_up_photos(photos, fewest, most)
            store = _write_store(Path(folder) / "photos", made)
            with h5py.File(_write_padded(Path(folder) / "photos.h5", made, most, h5py), "r") as padded:
                del made
                check_loading(store, padded)
                # Not reported: for a while after the files were written, the store was five times slower.
                _row("warming up", store, padded, seconds)
                case = f"{BATCH} photos of {name} proposals"
                yield _row(f"{case}, beside HDF5 by name", store, padded, seconds)
                opened = {array: padded[array] for array in ("features", "boxes")}
                yield _row(f"{case}, beside open HDF5 arrays", store, opened, seconds)


def check_loading(store: FeatureStore, padded: Any) -> None:
    """Raise unless both give the same proposals."""
    for row in range(0, len(store.image_ids), 17):
        our_features, our_boxes = read_padded(store, np.array([row]))
        number = our_features.shape[1]
        features, boxes = padded["features"][row][:, :number].T, padded["boxes"][row][:, :number].T
        if not (our_features[0] == features.astype(np.float16)).all() or not (our_boxes[0] == boxes).all():
            raise TallyboxError(f"both must give the same proposals before they are timed, but photo {row} differs")


def read_padded(store: FeatureStore, rows: NDArray[np.int64]) -> tuple[NDArray[np.float16], NDArray[np.float32]]:
    """Return features ``[B, N, F]`` and boxes ``[B, N, 4]`` of photos, padded to the longest of them."""
    shape = len(rows), int(store.num_boxes[rows].max())
    features = np.empty((*shape, store.width), np.float16)
    boxes = np.empty((*shape, 4), np.float32)
    store.read_into(rows, features, boxes)
    return features, boxes


def _row(case: str, store: FeatureStore, padded: Any, seconds: float) -> BenchRow:
    device = torch.device("cpu")
    ours, reference = _from_store(store), _one_at_a_time(padded)
    peak, reference_peak = peak_bytes(ours, device), peak_bytes(reference, device)
    # Alternating, and the fastest of each: other processes slow both down, but not at the same moments.
    turns = [[median_ms(run, device, seconds=seconds / TURNS) for run in (ours, reference)] for _ in range(TURNS)]
    ours_ms, reference_ms = (min(times) for times in zip(*turns, strict=True))
    return BenchRow(
        case, round(ours_ms, 3), round(reference_ms, 3), round(reference_ms / ours_ms, 2), peak, reference_peak
    )


def _from_store(store: FeatureStore) -> Callable[[], object]:
    random = np.random.default_rng(0)
    return lambda: read_padded(store, random.permutation(len(store.image_ids))[:BATCH])


def _one_at_a_time(padded: Any) -> Callable[[], object]:
    """Read as a data set that gives one sample after another does, and stack them to a batch."""
    random = np.random.default_rng(0)

    def run() -> object:
        rows = random.permutation(len(padded["features"]))[:BATCH].tolist()
        samples = [(padded["features"][row], padded["boxes"][row]) for row in rows]
        return np.stack([features for features, _ in samples]), np.stack([boxes for _, boxes in samples])

    return run


def _made_up_photos(number: int, fewest: int, most: int) -> list[PhotoFeatures]:
    random = np.random.default_rng(1)
    photos = []
    for image_id in range(number):
        proposals = int(random.integers(fewest, most + 1))
        corners = random.random((proposals, 2, 2), np.float32) * 480
        boxes = np.concatenate((corners.min(1), corners.max(1)), axis=1)
        features = random.random((proposals, FEATURES), np.float32)
        photos.append(PhotoFeatures(str(image_id), (640, 480), boxes, features))
    return photos


def _write_store(folder: Path, photos: list[PhotoFeatures]) -> FeatureStore:
    write_features(folder / "photos.safetensors", photos)
    return FeatureStore.open(folder)


def _write_padded(path: Path, photos: list[PhotoFeatures], most: int, h5py: Any) -> Path:
    """Write `[I, F, N]` and `[I, 4, N]` in float32, as the published code lays them out."""
    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", (len(photos), FEATURES, most), "f4", fillvalue=0)
        boxes = file.create_dataset("boxes", (len(photos), 4, most), "f4", fillvalue=0)
        for row, photo in enumerate(photos):
            number = len(photo.boxes_xyxy)
            features[row, :, :number] = photo.features.T
            boxes[row, :, :number] = photo.boxes_xyxy.T
    with path.open("rb+") as written:
        os.fsync(written.fileno())  # the disk would be busy with it while both are measured
    return path


if __name__ == "__main__":
    print(json.dumps(report(list(bench_vqa_loading()), torch.device("cpu"))))
