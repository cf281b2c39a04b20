"""Detections that are kept beside an estimator: nothing is detected twice, and nothing stale is used."""

import os
import shutil

import pytest

from tallybox.errors import InputError
from tallybox.photos import sample_photos
from tallybox.photos.cache import cached_detections
from tallybox.photos.sources import find_photos


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for photo in sample_photos():
        shutil.copy2(photo, folder)
    return folder


def progress():
    calls = []
    return calls, lambda done, total: calls.append((done, total))


def test_a_second_call_detects_nothing_and_gives_the_same(tmp_path, photos):
    names, first = cached_detections(find_photos([photos]), tmp_path / "kept")
    calls, show = progress()
    again, second = cached_detections(find_photos([photos]), tmp_path / "kept", on_progress=show)
    assert calls == [(3, 3)]
    assert again == names
    for a, b in zip(first, second, strict=True):
        assert (a.image_id, a.image_size) == (b.image_id, b.image_size)
        assert (a.boxes == b.boxes).all()
        assert (a.scores == b.scores).all()


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, photos):

    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_detections(find_photos([photos]), tmp_path / "kept", on_progress=interrupt, photos_per_file=1)
    calls, show = progress()
    assert len(cached_detections(find_photos([photos]), tmp_path / "kept", on_progress=show)[1]) == 3
    assert calls == [(2, 3), (3, 3)]


def test_changed_and_new_photos_are_detected_and_removed_ones_left_out(tmp_path, photos):
    names = sorted(path.name for path in photos.iterdir())
    cached_detections(find_photos([photos]), tmp_path / "kept")
    shutil.copy(photos / names[1], photos / names[0])  # another photo under the same name
    (photos / names[2]).unlink()
    shutil.copy2(sample_photos()[0], photos / "new.jpg")
    calls, show = progress()
    found = cached_detections(find_photos([photos]), tmp_path / "kept", on_progress=show)[1]
    assert [image.image_id for image in found] == sorted([names[0], names[1], "new.jpg"])
    assert calls == [(1, 3), (3, 3)]
    by_id = {image.image_id: image for image in found}
    assert (by_id[names[0]].boxes == by_id[names[1]].boxes).all()


def test_another_detector_does_not_use_what_the_first_one_found(tmp_path, photos):
    cached_detections(find_photos([photos]), tmp_path / "kept")
    with pytest.raises(InputError, match=r"onnx|ONNX"):
        cached_detections(find_photos([photos]), tmp_path / "kept", spec=f"onnx:{tmp_path / 'no.onnx'}")


def test_a_photo_that_cannot_be_read_is_reported_each_time_and_left_out(tmp_path, photos):
    (photos / "broken.jpg").write_bytes(b"no photo")
    for _ in range(2):
        failures = []
        found = cached_detections(find_photos([photos]), tmp_path / "kept", on_failure=failures.append)[1]
        assert len(found) == 3
        assert len(failures) == 1
        assert "broken.jpg" in str(failures[0])


def test_where_no_photo_can_be_read_that_is_an_error(tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"no photo")
    with pytest.raises(InputError, match="None of 1 photos"):
        cached_detections(find_photos([tmp_path / "broken.jpg"]), tmp_path / "kept")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, photos):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="Cannot create"):
        cached_detections(find_photos([photos]), tmp_path / "kept")
