import json
import shutil
from functools import partial

import numpy as np
import pytest

from tallybox.errors import InputError
from tallybox.photos import read_photo, sample_photos
from tallybox.photos.sources import find_photos
from tallybox.vqa.data.store import read_features
from tallybox.vqa.regions import photo_features, write_photo_features
from tests.support import commands
from tests.support.photos import embedded_detector
from tests.support.small_photos import save_photos

run = partial(commands.run, "vqa", "features")


def photos_in(folder):
    return [photo for file in sorted(folder.glob("*.safetensors")) for photo in read_features(file)]


def test_photos_have_the_regions_that_ask_sees_under_their_ids(tmp_path):
    (tmp_path / "photos" / "b").mkdir(parents=True)
    for path, name in zip(sample_photos(), ("COCO_val2014_000000000042.jpg", "b/c.jpg", "d.jpg"), strict=True):
        shutil.copy(path, tmp_path / "photos" / name)
    done = run(tmp_path / "photos", "--out", tmp_path / "features", "--json")
    assert done.exit_code == 0, done.output
    found = {photo.image_id: photo for photo in photos_in(tmp_path / "features")}
    assert found.keys() == {"42", "b/c", "d"}
    assert json.loads(done.stdout)["photos"] == 3
    (asked,) = photo_features(embedded_detector(), [read_photo(tmp_path / "photos" / "b" / "c.jpg", reduced_to=1280)])
    np.testing.assert_array_equal(found["b/c"].boxes_xyxy, asked.boxes_xyxy)
    np.testing.assert_array_equal(found["b/c"].features, asked.features)


def test_it_goes_on_after_an_interruption_and_with_more_photos(tmp_path):
    save_photos(tmp_path / "photos", 5)

    def stop_after_3(done, total):
        if done == 4:
            raise KeyboardInterrupt

    def write(out, **options):
        options |= {"detector": embedded_detector(), "photos_in_file": 2}
        return write_photo_features(find_photos([tmp_path / "photos"]), tmp_path / out, **options)

    write("complete")
    with pytest.raises(KeyboardInterrupt):
        write("features", on_progress=stop_after_3)
    assert [path.name for path in (tmp_path / "features").iterdir()] == ["000000.safetensors"]
    seen: list[tuple[int, int]] = []
    again = write("features", on_progress=lambda *progress: seen.append(progress))
    assert (again, seen) == (5, [(3, 5), (4, 5), (5, 5)])
    for path in (tmp_path / "complete").iterdir():
        assert path.read_bytes() == (tmp_path / "features" / path.name).read_bytes()
    save_photos(tmp_path / "photos", 6)
    assert write("features") == len(photos_in(tmp_path / "features")) == 6


def test_photos_that_cannot_be_read_are_reported_and_the_others_written(tmp_path):
    save_photos(tmp_path / "photos", 3)
    (tmp_path / "photos" / "01.png").write_bytes(b"no photo")
    done = run(tmp_path / "photos", "--out", tmp_path / "features")
    assert done.exit_code == 1
    assert "01.png" in done.stderr
    assert len(photos_in(tmp_path / "features")) == 2
    (tmp_path / "photos" / "00.png").unlink()
    (tmp_path / "photos" / "02.png").unlink()
    assert run(tmp_path / "photos", "--out", tmp_path / "nothing").exit_code == 1
    assert run(tmp_path / "absent", "--out", tmp_path / "n").exit_code == 2
    same = {name: tmp_path / name for name in ("COCO_val2014_000000000007.jpg", "7.png")}
    with pytest.raises(InputError, match="'7'"):
        write_photo_features(same, tmp_path / "same")
