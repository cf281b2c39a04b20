import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from tallybox.cli import cli
from tallybox.errors import InputError
from tallybox.photos import read_photo, sample_photos
from tallybox.photos.features import region_features
from tallybox.photos.sources import find_photos
from tallybox.vqa import photo_features as features_module
from tallybox.vqa.data.feature_files import find_feature_files
from tallybox.vqa.photo_features import write_photo_features
from tests.support.ask import asking_detector
from tests.support.small_photos import save_photos


def run(*arguments: object):
    return CliRunner().invoke(cli, ["vqa", "features", *(str(argument) for argument in arguments)])


def photos_in(folder):
    return [photo for file in find_feature_files(folder) for photo, _ in file.photos()]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "photos").mkdir()
    for path, name in zip(sample_photos(), ("COCO_val2014_000000000042.jpg", "b/c.jpg", "d.jpg"), strict=True):
        (tmp_path / "photos" / name).parent.mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "photos" / name)
    return tmp_path / "photos"


def test_the_regions_of_photos_as_ask_sees_them(folder, tmp_path):
    done = run(folder, "--out", tmp_path / "features", "--json")
    assert done.exit_code == 0, done.output
    found = {photo.image_id: photo for photo in photos_in(tmp_path / "features")}
    assert found.keys() == {"42", "b/c", "d"}
    assert json.loads(done.stdout)["regions"] == sum(len(photo.features) for photo in found.values())
    asked = region_features(asking_detector(), [read_photo(folder / "b/c.jpg", reduced_to=1280)])[0]
    np.testing.assert_array_equal(found["b/c"].boxes_xyxy, asked.boxes_xyxy)
    np.testing.assert_array_equal(found["b/c"].features, asked.scores)


def test_it_goes_on_with_more_photos_and_after_an_interruption(tmp_path, monkeypatch):
    monkeypatch.setattr(features_module, "PHOTOS_IN_FILE", 2)
    save_photos(tmp_path / "photos", 5)
    whole = write_photo_features(find_photos([tmp_path / "photos"]), tmp_path / "whole")
    write = features_module.write_features

    def killed(path, photos):
        if path.name == "000001.safetensors":
            raise KeyboardInterrupt
        write(path, photos)

    with monkeypatch.context() as patched:
        patched.setattr(features_module, "write_features", killed)
        with pytest.raises(KeyboardInterrupt):
            write_photo_features(find_photos([tmp_path / "photos"]), tmp_path / "features")
    assert [path.name for path in sorted((tmp_path / "features").glob("*.safetensors"))] == ["000000.safetensors"]
    seen: list[tuple[int, int]] = []
    again = write_photo_features(
        find_photos([tmp_path / "photos"]), tmp_path / "features", on_progress=lambda *progress: seen.append(progress)
    )
    assert (whole.photos, again.photos, seen) == (5, 5, [(3, 5), (4, 5), (5, 5)])
    for name in ("000000", "000001", "000002"):
        one, other = ((tmp_path / kind / f"{name}.safetensors").read_bytes() for kind in ("whole", "features"))
        assert one == other
    save_photos(tmp_path / "photos", 6)
    assert write_photo_features(find_photos([tmp_path / "photos"]), tmp_path / "features").photos == 6
    assert len(photos_in(tmp_path / "features")) == 6


def test_photos_that_cannot_be_read_are_reported_and_the_others_written(tmp_path):
    save_photos(tmp_path / "photos", 3)
    (tmp_path / "photos" / "01.png").write_bytes(b"no photo")
    done = run(tmp_path / "photos", "--out", tmp_path / "features")
    assert done.exit_code == 1
    assert "01.png must be a photo, but it is no image" in done.stderr
    assert "2 photos" in done.stdout
    assert len(photos_in(tmp_path / "features")) == 2


def test_mistakes_end_in_one_line(tmp_path):
    save_photos(tmp_path / "photos", 1)
    assert run(tmp_path / "photos", "--out", tmp_path / "features").exit_code == 0
    other = run(tmp_path / "photos", "--out", tmp_path / "features", "--detector", "onnx:a.onnx")
    assert other.exit_code == 1
    assert "holds a run with another configuration (detector " in other.stderr
    (tmp_path / "photos" / "00.png").write_bytes(b"no photo")
    nothing = run(tmp_path / "photos", "--out", tmp_path / "nothing")
    assert nothing.exit_code == 1
    assert "no photo of 1 could be read, so that nothing was written" in nothing.stderr
    assert run(tmp_path / "absent", "--out", tmp_path / "n").exit_code == 2
    own = run(tmp_path / "photos", "--out", tmp_path / "text", "--text", "a dog")
    assert own.exit_code == 1
    assert "picodet has categories of its own; leave --text out" in own.stderr
    same = {name: tmp_path / name for name in ("COCO_val2014_000000000007.jpg", "7.png")}
    with pytest.raises(InputError, match=r"different ids, but .*0007\.jpg and .*/7\.png are both '7'; rename one"):
        write_photo_features(same, tmp_path / "same")
