import json
from dataclasses import replace

import numpy as np
import pytest

from tallybox.detections.detections import Detections
from tallybox.detections.readers import read_detections
from tallybox.errors import InputError, TallyboxError
from tallybox.photos.cache import MAX_PHOTOS, detect_to_file, resumed
from tallybox.photos.detector import detector_of
from tallybox.photos.images import read_photo
from tallybox.photos.pipeline import BATCH, PhotoResult, Tiling, detect_each
from tallybox.photos.sources import find_photos
from tests.support.detection_sets import assert_same_images
from tests.support.onnx_models import write_onnx
from tests.support.small_photos import save_photos


@pytest.fixture
def spec(tmp_path):
    return f"onnx:{write_onnx(tmp_path / 'fruit.onnx', input_shape=('B', 3, 64, 64))}"


def test_the_file_holds_what_the_detector_finds_and_its_categories(tmp_path, spec):
    paths = save_photos(tmp_path / "photos")
    out = tmp_path / "new" / "found.parquet"
    shown = []
    photos = find_photos([tmp_path / "photos"])
    written = detect_to_file(photos, out, spec=spec, on_progress=lambda *done: shown.append(done))
    detector = detector_of(spec)
    stored = list(read_detections(out))
    assert_same_images(stored, written)
    assert shown[-1] == (3, 3)
    assert stored[0].category_names == detector.categories
    for image, path in zip(stored, paths, strict=True):
        (expected,) = detector.detect([read_photo(path)])
        expected = replace(expected, image_id=path.name)
        assert image.image_size == expected.image_size
        assert_same_images([image], [expected])
    assert [file.name for file in out.parent.iterdir()] == ["found.parquet"]


@pytest.mark.parametrize("name", ["found.json", "found.json.gz"])
def test_coco_results_are_written_for_cocos_categories_only(tmp_path, spec, name):
    photos = find_photos([*save_photos(tmp_path / "photos")])
    names = json.dumps(["dog", "cup", "cat"])
    coco = f"onnx:{write_onnx(tmp_path / 'coco.onnx', input_shape=('B', 3, 64, 64), names=names)}"
    detect_to_file(photos, tmp_path / name, spec=coco)
    detector = detector_of(coco)
    for image, (image_id, path) in zip(read_detections(tmp_path / name), photos.items(), strict=True):
        (expected,) = detector.detect([read_photo(path)])
        assert image.image_id == image_id
        np.testing.assert_allclose(image.boxes, expected.boxes, atol=2e-3)
        np.testing.assert_array_equal(image.category_ids, expected.category_ids)
    with pytest.raises(InputError, match="pear"):
        detect_to_file(photos, tmp_path / "fruit.json", spec=spec)
    assert not (tmp_path / "fruit.json").exists()


def test_a_bad_photo_is_reported_and_the_others_are_written(tmp_path, spec):
    save_photos(tmp_path / "photos", 2)
    (tmp_path / "photos" / "00a.jpg").write_bytes(b"no photo")
    failures: list[InputError] = []
    out = tmp_path / "found.parquet"
    detect_to_file(find_photos([tmp_path / "photos"]), out, spec=spec, on_failure=failures.append)
    assert [image.image_id for image in read_detections(out)] == ["00.png", "01.png"]
    assert [str(tmp_path / "photos" / "00a.jpg") in str(failure) for failure in failures] == [True]
    with pytest.raises(InputError, match="None of 1 photos"):
        detect_to_file(find_photos([tmp_path / "photos" / "00a.jpg"]), tmp_path / "none.parquet", spec=spec)
    assert not (tmp_path / "none.parquet").exists()


class Recorder:
    """Detects one box in each photo and remembers the photos; ``limit`` photos may be detected."""

    def __init__(self, limit=100):
        self.seen, self.limit = [], limit

    def __call__(self, paths):
        for path in paths:
            if len(self.seen) == self.limit:
                raise KeyboardInterrupt
            self.seen.append(path.name)
            if path.read_bytes() == b"broken":
                yield PhotoResult(path, error=InputError("broken"))
                continue
            image = Detections([[0.1, 0.2, len(path.name), 9]], [0.3], [4], (20, 10), category_names={4: "fig"})
            yield PhotoResult(path, image, tiling=Tiling(64, 3, 0.5) if path.name == "b.jpg" else None)


@pytest.fixture
def photos(tmp_path):
    paths = [tmp_path / name for name in ("a.jpg", "b.jpg", "c.jpg")]
    for path in paths:
        path.write_bytes(b"photo")
    return {path.name: path for path in paths}


def detections_in(results):
    return [(photo.path, photo.detections.boxes.tolist(), photo.tiling) for photo in results]


def test_an_interrupted_run_goes_on_where_it_was_and_a_later_one_detects_nothing(tmp_path, photos):
    first, second, other = Recorder(), Recorder(), Recorder()
    with pytest.raises(KeyboardInterrupt):
        list(resumed(photos, tmp_path / "kept", {"detector": ("x",)}, Recorder(limit=2)))
    found = detections_in(resumed(photos, tmp_path / "kept", {"detector": ("x",)}, first))
    assert detections_in(resumed(photos, tmp_path / "kept", {"detector": ("x",)}, second)) == found
    assert (first.seen, second.seen) == (["c.jpg"], [])
    assert detections_in(resumed(photos, tmp_path / "kept", {"detector": ("y",)}, other)) == found
    assert other.seen == list(photos)


def test_a_killed_run_loses_a_few_photos_only(tmp_path, photos):
    many = {f"{number}.jpg": photos["a.jpg"] for number in range(MAX_PHOTOS + 5)}
    killed, again = resumed(many, tmp_path / "kept", {}, Recorder()), Recorder()
    for _ in range(MAX_PHOTOS + 2):
        next(killed)
    assert len(list(resumed(many, tmp_path / "kept", {}, again))) == len(many)
    assert len(again.seen) == 5
    killed.close()


def test_changed_and_new_and_broken_photos_are_detected_again_and_removed_ones_left_out(tmp_path, photos):
    photos["b.jpg"].write_bytes(b"broken")
    list(resumed(photos, tmp_path / "kept", {}, Recorder()))
    photos["a.jpg"].write_bytes(b"another photo")
    del photos["c.jpg"]
    photos["new.jpg"] = photos["a.jpg"].with_name("new.jpg")
    photos["new.jpg"].write_bytes(b"photo")
    again = Recorder()
    assert len(list(resumed(photos, tmp_path / "kept", {}, again))) == 3
    assert again.seen == ["a.jpg", "b.jpg", "new.jpg"]


class Fragile:
    """Fails on photos that are taller than wide."""

    categories = {0: "apple"}  # noqa: RUF012  # as the protocol has it

    def detect(self, photos):
        if any(photo.size_wh[0] < photo.size_wh[1] for photo in photos):
            raise InputError("too tall")
        return [Detections.empty(photo.name, photo.size_wh) for photo in photos]


def test_a_photo_that_a_detector_fails_on_leaves_the_others_alone(tmp_path):
    batch = list(detect_each(save_photos(tmp_path), Fragile()))
    assert [photo.detections is not None for photo in batch] == [True, False, True]
    assert str(batch[1].error) == "too tall"


def test_photos_are_read_only_a_batch_ahead(tmp_path):
    (photo,) = save_photos(tmp_path, 1)
    taken = []

    def paths():
        for number in range(100):
            taken.append(number)
            yield photo

    next(detect_each(paths(), Fragile()))
    assert len(taken) <= 2 * BATCH


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (lambda photos: [Detections.empty(1)] * 2, "must return .*got 2 of them"),
        (lambda photos: None, "TypeError"),
        (lambda photos: photos, "must return .*got Photo"),
    ],
)
def test_a_detector_that_breaks_the_protocol_is_one_line(tmp_path, found, said):
    detector = type("Mine", (), {"detect": lambda self, photos: found(photos)})()
    with pytest.raises(TallyboxError, match=rf"Mine\.detect {said}|Mine\.detect failed: {said}"):
        list(detect_each(save_photos(tmp_path), detector))
