import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors

from tallybox.errors import InputError
from tallybox.vqa.data.store import FeatureStore, read_features, write_features
from tests.support.vqa_files import assert_same_photos, small_photos


def test_written_photos_are_read_again_by_any_reader_of_safetensors(tmp_path):
    write_features(tmp_path / "a.safetensors", small_photos(10))
    assert_same_photos(list(read_features(tmp_path / "a.safetensors")), small_photos(10))
    assert load_file(tmp_path / "a.safetensors")["features"].dtype == np.float16
    with safe_open(tmp_path / "a.safetensors", "np") as file:
        assert json.loads(file.metadata()["image_ids"]) == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_files_of_other_precisions_are_read(tmp_path, dtype):
    write_features(tmp_path / "a.safetensors", small_photos(3))
    arrays = {name: torch.from_numpy(array) for name, array in load_file(tmp_path / "a.safetensors").items()}
    arrays["features"] = arrays["features"].to(dtype)
    save_tensors(arrays, tmp_path / "b.safetensors", {"image_ids": "[1, 2, 3]"})
    found = np.concatenate([photo.features for photo in read_features(tmp_path / "b.safetensors")])
    np.testing.assert_array_equal(found, arrays["features"].float().numpy())


def test_several_files_are_one_store_and_the_first_of_equal_photos_is_used(tmp_path):
    photos = small_photos(10)
    again = photos[3]._replace(features=photos[3].features + 1)
    write_features(tmp_path / "a.safetensors", photos[:6])
    write_features(tmp_path / "b.safetensors", [again, *photos[6:]])
    store = FeatureStore.open(tmp_path)
    assert (len(store.image_ids), len(store.row_of), store.width) == (11, 10, 6)
    rows = store.rows_of(["7", "4", "4", "10"])
    shape = len(rows), int(store.num_boxes[rows].max())
    features, boxes = np.ones((*shape, 6), np.float16), np.ones((*shape, 4), np.float32)
    mask = store.read_into(rows, features, boxes)
    for place, photo in enumerate([photos[6], photos[3], photos[3], photos[9]]):
        number = len(photo.boxes_xyxy)
        np.testing.assert_array_equal(features[place, :number], photo.features)
        np.testing.assert_array_equal(store.features_of(int(rows[place])), photo.features)
        np.testing.assert_array_equal(boxes[place, :number], photo.boxes_xyxy)
        assert mask[place].tolist() == [True] * number + [False] * (mask.shape[1] - number)
        assert not features[place, number:].any()
        assert not boxes[place, number:].any()


def test_stores_that_cannot_be_used(tmp_path):
    with pytest.raises(InputError, match="prepare"):
        FeatureStore.open(tmp_path)
    write_features(tmp_path / "a.safetensors", small_photos(3))
    with pytest.raises(InputError, match="2 photos, among them 8"):
        FeatureStore.open(tmp_path).rows_of(["1", "9", "8", "9"])
    write_features(tmp_path / "b.safetensors", small_photos(3, features=5))
    with pytest.raises(InputError, match="numbers of features"):
        FeatureStore.open(tmp_path)
    with pytest.raises(InputError, match="features"):
        write_features(tmp_path / "c.safetensors", [*small_photos(1), *small_photos(1, features=5)])
    with pytest.raises(InputError, match="no photo"):
        write_features(tmp_path / "c.safetensors", [])
    assert not (tmp_path / "c.safetensors").exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "no ids", "ids of other photos", "boxes of other photos"])
def test_a_damaged_file_is_one_line(tmp_path, damage):
    path = tmp_path / "a.safetensors"
    write_features(path, small_photos(3))
    arrays, ids = load_file(path), {"image_ids": "[1, 2, 3]"}
    if damage in ("cut", "empty"):
        path.write_bytes(path.read_bytes()[:-9] if damage == "cut" else b"")
    elif damage == "boxes of other photos":
        save_file(arrays | {"boxes_xyxy": arrays["boxes_xyxy"][1:]}, path, ids)
    else:
        save_file(arrays, path, None if damage == "no ids" else {"image_ids": "[1, 2]"})
    with pytest.raises(InputError, match=r"a\.safetensors") as raised:
        FeatureStore.open(tmp_path)
    assert "\n" not in str(raised.value)
