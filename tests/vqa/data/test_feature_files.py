import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors

from tallybox.errors import InputError
from tallybox.vqa.data.feature_files import find_feature_files, write_features
from tallybox.vqa.data.features import PhotoFeatures, write_tsv
from tests.support.vqa_feature_files import write_lxmert, write_openvqa, write_published_h5
from tests.support.vqa_files import small_photos


def photos_with_features(number: int) -> list[PhotoFeatures]:
    """A proposal without any feature could be padding in the published file."""
    return [photo._replace(features=photo.features + 1) for photo in small_photos(number, features=11)]


def many_as_npz(path: Path, photos: list[PhotoFeatures]) -> Path:
    np.savez(
        path,
        image_ids=np.array([int(photo.image_id) for photo in photos]),
        num_boxes=[len(photo.boxes_xyxy) for photo in photos],
        sizes_wh=[photo.size_wh for photo in photos],
        boxes_xyxy=np.concatenate([photo.boxes_xyxy for photo in photos]),
        features=np.concatenate([photo.features for photo in photos]),
    )
    return path


def plain(path: Path, photos: list[PhotoFeatures]) -> Path:
    write_features(path, photos)
    return path


WRITERS = {
    "six columns": lambda folder, photos: (write_tsv(folder / "a.tsv", photos), folder / "a.tsv")[1],
    "LXMERT": lambda folder, photos: write_lxmert(folder / "val2014_obj36.tsv", photos),
    "openvqa": lambda folder, photos: write_openvqa(folder / "npz", photos),
    "bottom-up-attention.pytorch": lambda folder, photos: write_openvqa(folder / "npz", photos, transposed=False),
    "published": lambda folder, photos: write_published_h5(folder / "genome-trainval.h5", photos),
    "plain": lambda folder, photos: plain(folder / "a.safetensors", photos),
    "plain npz": lambda folder, photos: many_as_npz(folder / "a.npz", photos),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_every_layout_gives_the_same_photos(tmp_path, kind):
    photos = photos_with_features(21)
    (file,) = find_feature_files(WRITERS[kind](tmp_path, photos))
    assert [one for one in file.image_ids() if one != "0"] == [photo.image_id for photo in photos]
    found = list(file.photos())
    assert len(found) == 21
    for photo, (read, _) in zip(photos, found, strict=True):
        assert (read.image_id, read.size_wh) == (photo.image_id, photo.size_wh)
        np.testing.assert_array_equal(read.boxes_xyxy, photo.boxes_xyxy)
        np.testing.assert_array_equal(read.features, photo.features)
    for number in (0, 7, 20):
        rest = [photo.image_id for photo, _ in file.photos(found[number][1])]
        assert rest == [photo.image_id for photo in photos[number + 1 :]]
    assert found[-1][1].bytes_read <= file.described()["bytes"]


def test_a_prefix_keeps_visual_genome_apart(tmp_path):
    (file,) = find_feature_files(WRITERS["six columns"](tmp_path, small_photos(2)), "VG")
    assert file.image_ids() == [photo.image_id for photo, _ in file.photos()] == ["VG/1", "VG/2"]


def test_a_prefix_that_is_there_is_not_put_again(tmp_path):
    (photo,) = photos_with_features(1)
    for name in ("VG_100K/400", "VG_100K_2/500", "600"):
        (tmp_path / "genome" / name).parent.mkdir(parents=True, exist_ok=True)
        np.savez(tmp_path / "genome" / f"{name}.npz", x=photo.features, bbox=photo.boxes_xyxy)
    (file,) = find_feature_files(tmp_path / "genome", "VG")
    assert sorted(file.image_ids()) == ["VG/400", "VG/500", "VG/600"]
    assert sorted(read.image_id for read, _ in file.photos()) == ["VG/400", "VG/500", "VG/600"]


def test_ids_may_be_texts(tmp_path):
    photos = photos_with_features(2)
    write_published_h5(tmp_path / "a.h5", photos, unused=0)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        del file["ids"]
        file["ids"] = [f"COCO_val2014_{int(photo.image_id):012d}" for photo in photos]
    many_as_npz(tmp_path / "a.npz", photos)
    with np.load(tmp_path / "a.npz") as arrays:
        np.savez(tmp_path / "b.npz", **{**arrays, "image_ids": np.array([b"COCO_val2014_000000000001", b"2"])})
    for name in ("a.h5", "b.npz"):
        (file,) = find_feature_files(tmp_path / name)
        assert file.image_ids() == [read.image_id for read, _ in file.photos()] == ["1", "2"]


def test_a_folder_of_several_files(tmp_path):
    photos = small_photos(9)
    write_tsv(tmp_path / "karpathy_train.tsv.0", photos[:3])
    write_tsv(tmp_path / "karpathy_train.tsv.1", photos[3:6])
    plain(tmp_path / "more.safetensors", photos[6:])
    (tmp_path / ".more.safetensors.1234.unfinished").write_bytes(b"left by a crash")
    files = find_feature_files(tmp_path)
    assert [image_id for file in files for image_id in file.image_ids()] == [photo.image_id for photo in photos]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty must hold files of features \(\*\.tsv\*, .* but there are none"):
        find_feature_files(tmp_path / "empty")


def broken_npz(folder: Path) -> Path:
    write_openvqa(folder, photos_with_features(3))
    path = sorted((folder / "val2014").iterdir())[1]
    path.write_bytes(path.read_bytes()[:200])
    return folder


def npz_without_boxes(folder: Path) -> Path:
    write_openvqa(folder, photos_with_features(3))
    np.savez(sorted((folder / "val2014").iterdir())[1], x=np.ones((11, 2)))
    return folder


def npz_of_one_number(folder: Path) -> Path:
    write_openvqa(folder, photos_with_features(3))
    np.savez(sorted((folder / "val2014").iterdir())[1], x=np.ones((11, 2)), bbox=np.array(3.0))
    return folder


def npz_with_two_widths(folder: Path) -> Path:
    write_openvqa(folder, photos_with_features(3))
    np.savez(
        sorted((folder / "val2014").iterdir())[1], x=np.ones((11, 1)), bbox=np.ones((1, 4)), image_w=[1, 2], image_h=[]
    )
    return folder


def wrong_type(path: Path) -> Path:
    """The heights of a file of photos are lists, of which the second is no number."""
    write_published_h5(path, photos_with_features(3))
    with h5py.File(path, "a") as file:
        heights = file["heights"][()].tolist()
        del file["heights"]
        file["heights"] = np.array([str(height) for height in heights[:1]] + ["none"] + heights[2:], "S9")
    return path


def wrong_h5(path: Path) -> Path:
    write_published_h5(path, photos_with_features(3))
    with h5py.File(path, "a") as file:
        file["features"][1, 3, 0] = np.nan
    return path


def wrong_plain(path: Path) -> Path:
    photos = photos_with_features(3)
    return plain(path, [photos[0], photos[1]._replace(boxes_xyxy=-photos[1].boxes_xyxy), photos[2]])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (broken_npz, r"val2014/COCO_val2014_000000000002.jpg.npz must be an .npz of one photo .*, but: "),
        (npz_without_boxes, r"000000000002.jpg.npz must be .* with the arrays x and bbox, but: .*bbox"),
        (npz_of_one_number, r"jpg\.npz: boxes must be 4 numbers for each of at least one, but got \[\]"),
        (npz_with_two_widths, r"000000000002.jpg.npz must be an .npz of one photo"),
        (wrong_type, r"a\.h5, record 1: must be readable, but: could not convert"),
        (wrong_h5, r"a\.h5, record 1: features must be finite numbers"),
        (wrong_plain, r"a\.safetensors, record 1: boxes must be x1 y1 x2 y2"),
    ],
)
def test_a_broken_photo_is_named_and_can_be_passed_over(tmp_path, made, message):
    suffix = {wrong_h5: ".h5", wrong_type: ".h5", wrong_plain: ".safetensors"}.get(made, "")
    (file,) = find_feature_files(made(tmp_path / f"a{suffix}"))
    with pytest.raises(InputError, match=message) as raised:
        list(file.photos())
    assert "\n" not in str(raised.value)
    errors: list[InputError] = []
    assert [photo.image_id for photo, _ in file.photos(None, errors.append)] == ["1", "3"]
    assert [str(error) for error in errors] == [str(raised.value)]


def test_bfloat16_is_read(tmp_path):
    photos = [photo._replace(features=photo.features // 16) for photo in photos_with_features(4)]
    plain(tmp_path / "a.safetensors", photos)
    arrays = {
        name: torch.from_numpy(array).bfloat16() if name == "features" else torch.from_numpy(array)
        for name, array in load_file(tmp_path / "a.safetensors").items()
    }
    ids = {"image_ids": json.dumps([photo.image_id for photo in photos])}
    save_tensors(arrays, tmp_path / "b.safetensors", ids)
    (file,) = find_feature_files(tmp_path / "b.safetensors")
    for photo, (read, _) in zip(photos, file.photos(), strict=True):
        np.testing.assert_array_equal(read.features, photo.features)


def test_sizes_may_be_arrays_of_one_number(tmp_path):
    (photo,) = photos_with_features(1)
    width, height = ([side] for side in photo.size_wh)
    np.savez(tmp_path / "1.npz", x=photo.features, bbox=photo.boxes_xyxy, image_w=width, image_h=height)
    (file,) = find_feature_files(tmp_path)
    assert [read.size_wh for read, _ in file.photos()] == [photo.size_wh]


def test_a_gzip_file_cut_short_gives_the_photos_before_it(tmp_path):
    write_tsv(tmp_path / "whole.tsv.gz", small_photos(300, features=64))
    content = (tmp_path / "whole.tsv.gz").read_bytes()
    (tmp_path / "cut.tsv.gz").write_bytes(content[: len(content) // 2])
    (file,) = find_feature_files(tmp_path / "cut.tsv.gz")
    errors: list[InputError] = []
    read = [photo.image_id for photo, _ in file.photos(None, errors.append)]
    assert read == [str(number) for number in range(1, len(read) + 1)]
    assert file.image_ids()[: len(read)] == read
    assert any("must be a whole gzip file, but it is cut short" in str(error) for error in errors)


def other_h5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["image_features"] = np.zeros((2, 3))


def metadata_missing(path: Path) -> None:
    save_file({"num_boxes": np.array([1])}, path)


def rows_missing(path: Path) -> None:
    photos = photos_with_features(2)
    arrays = {"num_boxes": np.array([2, 2]), "sizes_wh": np.ones((2, 2), np.float32)}
    arrays |= {"boxes_xyxy": photos[0].boxes_xyxy[:1], "features": photos[0].features[:1]}
    save_file(arrays, path, {"image_ids": json.dumps(["a", "b"])})


def ids_missing(path: Path) -> None:
    save_file(
        {
            "num_boxes": np.array([1]),
            "sizes_wh": np.ones((1, 2), np.float32),
            "boxes_xyxy": np.zeros((1, 4), np.float32),
            "features": np.zeros((1, 4), np.float32),
        },
        path,
        {"image_ids": json.dumps(["a", "b"])},
    )


@pytest.mark.parametrize(
    ("name", "made", "message"),
    [
        ("a.h5", lambda path: path.write_bytes(b"no HDF5"), "must be a whole HDF5 file, but: "),
        ("a.h5", other_h5, r"must have the arrays features \[I, F, N\], .* but has none of them"),
        ("a.safetensors", lambda path: path.write_bytes(b"x" * 50), "must have image_ids and the arrays .*, but: "),
        ("a.safetensors", metadata_missing, "must have image_ids and the arrays num_boxes, .*, but: 'image_ids'"),
        ("a.safetensors", rows_missing, r"must have 4 rows, the sum of num_boxes, but have \[1, 1\]"),
        ("a.safetensors", ids_missing, r"image_ids, num_boxes \[I\] and sizes_wh \[I, 2\] must be of the same photos"),
        ("a.npz", lambda path: path.write_bytes(b"PK\3\4"), "must have image_ids and the arrays"),
        ("a.npz", lambda path: np.savez(path, x=np.ones(3)), "must have image_ids and the arrays"),
    ],
)
def test_a_file_that_is_something_else_is_one_line(tmp_path, name, made, message):
    made(tmp_path / name)
    (file,) = find_feature_files(tmp_path / name)
    for read in (file.image_ids, lambda: list(file.photos())):
        with pytest.raises(InputError, match=message) as raised:
            read()
        assert "\n" not in str(raised.value)
        assert str(tmp_path / name) in str(raised.value)


def test_what_is_written_is_the_same_every_time(tmp_path):
    for name in ("a", "b"):
        plain(tmp_path / f"{name}.safetensors", small_photos(5))
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
