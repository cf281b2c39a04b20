from pathlib import Path

import numpy as np
import pytest

from tallybox.errors import InputError
from tallybox.vqa.data import store as store_module
from tallybox.vqa.data.features import FilePosition, PhotoFeatures
from tallybox.vqa.data.store import FeatureStore, StoreWriter, complete_store
from tests.support.vqa_files import small_photos


def write(folder: Path, photos: list[PhotoFeatures], stop_after: int | None = None) -> Path:
    """Write photos; as a killed process would, leave off after some."""
    writer = StoreWriter(folder)
    for number, photo in enumerate(photos[: stop_after or len(photos)]):
        if number >= writer.position.record:
            writer.add(photo, 0, FilePosition(number + 1), f"record {number}")
    if stop_after is None:
        writer.end_source(0)
        writer.finish()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(store_module, "PHOTOS_IN_BLOCK", 4)


@pytest.mark.usefixtures("small_blocks")
def test_photos_come_back_as_they_were(tmp_path):
    photos = small_photos(10)
    store = FeatureStore.open(write(tmp_path / "photos", photos))
    store.verify()
    assert store.features.dtype == np.float16
    assert len(store) == 10
    assert len(store.header["blocks"]) == 3
    rows = store.rows_of(["7", "2", "2"])
    shape = len(rows), int(np.diff(store.offsets)[rows].max())
    features, boxes = np.ones((*shape, store.features.shape[1]), np.float16), np.ones((*shape, 4), np.float32)
    mask = store.read_into(rows, features, boxes)
    for place, row in enumerate(rows.tolist()):
        number = len(photos[row].boxes_xyxy)
        np.testing.assert_array_equal(features[place, :number], photos[row].features)
        np.testing.assert_array_equal(boxes[place, :number], photos[row].boxes_xyxy)
        assert mask[place].tolist() == [True] * number + [False] * (mask.shape[1] - number)
        assert not features[place, number:].any()
        assert not boxes[place, number:].any()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("stop_after", [1, 3, 4, 5, 8, 11])
def test_taken_up_again_it_becomes_the_same(tmp_path, stop_after):
    photos = small_photos(11)
    whole = contents(write(tmp_path / "whole", photos))
    write(tmp_path / "photos", photos, stop_after)
    assert not (tmp_path / "photos").exists()
    assert contents(write(tmp_path / "photos", photos)) == whole


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("damage", ["half a block", "half a line", "lost data", "no header yet", "no name yet"])
def test_every_moment_of_a_crash(tmp_path, damage):
    photos = small_photos(11)
    whole = contents(write(tmp_path / "whole", photos))
    write(tmp_path / "photos", photos, 9)
    unfinished = tmp_path / "photos.unfinished"
    if damage == "half a block":  # written, not in the journal
        with (unfinished / "features.f16").open("ab") as file:
            file.write(b"x" * 100)
    elif damage == "half a line":
        with (unfinished / "journal.jsonl").open("a") as file:
            file.write('{"source": 0, "pla')
    elif damage == "lost data":  # the journal reached the disk, the block did not
        content = (unfinished / "boxes.f32").read_bytes()
        (unfinished / "boxes.f32").write_bytes(content[:-5])
    elif damage == "no header yet":
        (unfinished / "offsets.npy").write_bytes(b"cut")
    else:
        (tmp_path / "whole").rename(unfinished.with_name("done.unfinished"))
        assert complete_store(tmp_path / "done")
        assert contents(tmp_path / "done") == whole
    assert contents(write(tmp_path / "photos", photos)) == whole


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("moment", ["linked", "journal", "begun", "header", "renamed", "no links"])
def test_every_moment_of_a_crash_while_a_store_is_extended(tmp_path, moment, monkeypatch):
    photos, folder = small_photos(21), write(tmp_path / "photos", small_photos(10))
    unfinished = tmp_path / "photos.unfinished"
    if moment == "no links":
        monkeypatch.setattr(store_module.os, "link", lambda source, target: (_ for _ in ()).throw(OSError("none")))
    writer = StoreWriter(folder)
    if moment == "linked":
        (unfinished / "journal.jsonl").unlink()
    elif moment == "journal":
        (unfinished / "journal.jsonl").write_text("")
    else:
        for number, photo in enumerate(photos[10:]):
            writer.add(photo, 1, FilePosition(number + 1), "")
    if moment in ("header", "renamed"):
        monkeypatch.setattr(store_module, "complete_store", lambda folder: False)
        writer.end_source(1)
        writer.finish()
        monkeypatch.undo()
    if moment == "renamed":
        folder.rename(tmp_path / "photos.replaced")
    else:
        FeatureStore.open(folder).verify()
    if moment not in ("header", "renamed"):
        writer = StoreWriter(folder)
        for number, photo in enumerate(photos[10:]):
            if writer.source != 1 or number >= writer.position.record:
                writer.add(photo, 1, FilePosition(number + 1), "")
        writer.end_source(1)
        writer.finish()
    assert complete_store(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    store = FeatureStore.open(folder)
    store.verify()
    assert store.image_ids.tolist() == [photo.image_id for photo in photos]
    np.testing.assert_array_equal(store.features, np.concatenate([photo.features for photo in photos]).astype("f2"))


def test_of_photos_that_come_again_the_first_counts(tmp_path):
    first, second = small_photos(2)
    again = first._replace(features=first.features + 1)
    store = FeatureStore.open(write(tmp_path / "photos", [first, second, again, second]))
    assert store.image_ids.tolist() == ["1", "2"]
    assert store.header["repeated"] == 2
    np.testing.assert_array_equal(store.features[: len(first.features)], first.features)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["features.f16", "boxes.f32", "offsets.npy"])
def test_a_changed_byte_is_found(tmp_path, name):
    write(tmp_path / "photos", small_photos(10))
    content = bytearray((tmp_path / "photos" / name).read_bytes())
    content[-3] ^= 1
    (tmp_path / "photos" / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} must be as it was written, but its checksum differs"):
        FeatureStore.open(tmp_path / "photos").verify()
    if name != "offsets.npy":
        StoreWriter(tmp_path / "photos")  # whose data is the same
        with pytest.raises(InputError, match=r"delete .*photos and .*photos\.unfinished and repeat"):
            FeatureStore.open(tmp_path / "photos").verify()


def test_what_cannot_be_stored(tmp_path):
    one, other = small_photos(2)
    with pytest.raises(InputError, match="record 1: features must be 6 numbers as before, but got 5"):
        write(tmp_path / "a", [one, other._replace(features=other.features[:, :5])])
    with pytest.raises(InputError, match="record 0: features must be at most 65504 for half precision"):
        write(tmp_path / "b", [one._replace(features=one.features + 1e5)])
    with pytest.raises(InputError, match="at least one photo, but there is none"):
        write(tmp_path / "c", [])


def test_what_cannot_be_opened(tmp_path):
    with pytest.raises(InputError, match="must be a feature store, but it is none; run tallybox vqa prepare"):
        FeatureStore.open(tmp_path)
    write(tmp_path / "photos", small_photos(3))
    with pytest.raises(InputError, match=r"among the 3 of .* but 2 are not, among them 8"):
        FeatureStore.open(tmp_path / "photos").rows_of(["1", "9", "8", "9"])
    boxes = tmp_path / "photos" / "boxes.f32"
    boxes.write_bytes(boxes.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"must have .* bytes, but has .*; prepare it again"):
        FeatureStore.open(tmp_path / "photos")


@pytest.mark.parametrize("name", ["header.json", "offsets.npy", "image_ids.npy", "features.f16"])
@pytest.mark.parametrize("kept", [20, 0, None])
def test_a_damaged_store_is_one_line(tmp_path, name, kept):
    path = write(tmp_path / "photos", small_photos(3)) / name
    content = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(content[:kept])
    with pytest.raises(InputError, match=r"must be|must have") as raised:
        FeatureStore.open(tmp_path / "photos")
    assert "\n" not in str(raised.value)
    assert str(path if path.exists() or name != "header.json" else path.parent) in str(raised.value)
    assert "prepare" in str(raised.value)


def test_a_third_of_padded_float32(tmp_path):
    random = np.random.default_rng(0)
    photos = []
    for image_id in range(50):
        number = int(random.integers(10, 101))
        boxes = np.tile(np.array([0, 0, 9, 9], np.float32), (number, 1))
        photos.append(PhotoFeatures(str(image_id), (640, 480), boxes, random.random((number, 2048), np.float32)))
    write(tmp_path / "photos", photos)
    padded = len(photos) * 100 * (2048 + 4) * 4
    assert sum(len(content) for content in contents(tmp_path / "photos").values()) < padded / 3
