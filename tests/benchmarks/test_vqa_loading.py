import h5py
import numpy as np
import pytest
from benchmarks.vqa_loading import FEATURES, bench_vqa_loading, check_loading

from tallybox.errors import TallyboxError
from tallybox.vqa.data.photos import PhotoFeatures
from tallybox.vqa.data.store import FeatureStore, write_features


def test_rows_name_both():
    rows = list(bench_vqa_loading(seconds=0.01, photos=66))
    assert [row.case for row in rows] == [
        f"64 photos of {number} proposals, beside {way}"
        for number in ("10 to 100", "36")
        for way in ("HDF5 by name", "open HDF5 arrays")
    ]
    assert all(row.median_ms > 0 and row.reference_ms > 0 for row in rows)


def test_nothing_is_timed_that_differs(tmp_path):
    photo = PhotoFeatures("1", (9, 9), np.zeros((2, 4), np.float32), np.ones((2, FEATURES), np.float32))
    write_features(tmp_path / "photos" / "one.safetensors", [photo])
    with h5py.File(tmp_path / "padded.h5", "w") as padded:
        padded["features"], padded["boxes"] = np.zeros((1, FEATURES, 2), "f4"), np.zeros((1, 4, 2), "f4")
        with pytest.raises(TallyboxError, match="same proposals"):
            check_loading(FeatureStore.open(tmp_path / "photos"), padded)
