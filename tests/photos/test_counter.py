from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

import tallybox
from tallybox import PhotoCounter
from tallybox.errors import InputError, InputTypeError, TallyboxError
from tallybox.estimator.explanation import merged_into
from tallybox.estimator.fitted import save_fitted
from tallybox.photos import PicoDet, sample_photos
from tests.support.estimators import small_estimator
from tests.support.photos import embedded_detector, embedded_estimator


@pytest.fixture(scope="module")
def counter():
    return PhotoCounter(embedded_detector())


def test_categories_are_named_by_name_or_id(counter):
    counts = counter.count(sample_photos()[1], ["horse", 18])
    assert list(counts) == ["horse", "dog"]
    assert counts["dog"].count == 0
    with pytest.raises(InputError, match="did you mean 'horse'"):
        counter.count(sample_photos()[1], ["hors"])


def test_a_photo_that_was_decoded_at_a_reduced_size_is_drawn_whole(tmp_path):
    counter = PhotoCounter(PicoDet(size=64, device="cpu"), embedded_estimator())
    (kept,) = counter.count_each([sample_photos()[1]], keep_photos=True)
    assert kept.photo.image.size < kept.photo.size_wh
    assert counter.draw(kept).width == kept.photo.size_wh[0]


def test_many_photos_come_in_order_and_a_bad_file_is_an_item_with_its_error(counter, tmp_path):
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(b"\xff\xd8 no photo")
    buses, riders, lobby = sample_photos()
    paths = [buses, broken, riders, tmp_path / "gone.jpg", str(lobby), buses]
    counted = counter.count_many(paths)
    assert [str(item.path) for item in counted] == [str(path) for path in paths]
    for item, path in zip(counted, paths, strict=True):
        if item.error is None:
            alone = counter.count(path)
            assert {name: p.to_dict() for name, p in item.counts.items()} == {n: p.to_dict() for n, p in alone.items()}
            assert len(item.detections) > 0
        else:
            assert str(path) in str(item.error)
            assert item.counts == {}
            assert item.detections is None
    assert [item.error is None for item in counted] == [True, False, True, False, True, True]
    assert counter.count_many([]) == []


def test_an_explanation_points_at_as_many_boxes_as_are_counted(counter):
    explained = counter.explain(sample_photos()[1], ["horse"])["horse"]
    assert explained.prediction.to_dict() == counter.count(sample_photos()[1])["horse"].to_dict()
    merged = merged_into(explained)
    assert (merged == range(len(merged))).sum() == explained.prediction.count == 2


def test_the_estimator_is_given_or_loaded_or_chosen_by_the_detector(tmp_path):
    path = tmp_path / "small.safetensors"
    small_estimator().save(path)
    expected = PhotoCounter(embedded_detector(), small_estimator()).count(sample_photos()[0], ["dog"])["dog"]
    for given in (path, str(path), small_estimator()):
        found = PhotoCounter(embedded_detector(), given).count(sample_photos()[0], ["dog"])["dog"]
        assert found.to_dict() == pytest.approx(expected.to_dict())
    assert PhotoCounter(embedded_detector()).estimator.is_calibrated
    other_size = PhotoCounter(PicoDet(size=320, device="cpu"))
    assert not other_size.estimator.is_calibrated
    counts = other_size.count(sample_photos()[1])
    assert counts["horse"].to_dict()["calibrated"] is False


def test_an_estimator_that_learned_from_another_detector_is_refused(tmp_path):
    path = tmp_path / "own.safetensors"
    save_fitted(replace(small_estimator().fitted, detector=("transformers:owl", "a red apple")), path)
    with pytest.raises(InputError, match="transformers:owl --text 'a red apple'"):
        PhotoCounter(estimator=path)
    PhotoCounter(embedded_detector(), path)  # an object cannot be compared with a SPEC


def test_a_detector_of_other_categories_names_them():
    class Apples:
        categories = {0: "red apple"}  # noqa: RUF012 - as users write it

        def detect(self, photos):
            box = [[5.0, 5, 90, 90]]
            return [tallybox.Detections(box, [0.97], [0], photo.size_wh, photo.name) for photo in photos]

    (item,) = PhotoCounter(Apples()).count_many([sample_photos()[0]])
    assert item.counts["red apple"].count == 1
    assert not item.counts["red apple"].calibrated


def test_mistakes_in_arguments_are_one_line(counter):
    class Apples:
        def __init__(self, categories):
            self.categories = categories

        def detect(self, photos):
            raise KeyError("no weights")

    for detector, message in (
        (Apples(["apple"]), "categories of Apples"),
        (Apples({0: "apple", 1: "apple"}), "different names"),
        (3, "detector must be"),
    ):
        with pytest.raises(TallyboxError, match=message):
            PhotoCounter(detector)
    with pytest.raises(InputError, match="device"):
        PhotoCounter(device="nonsense")
    with pytest.raises(InputError, match="device and texts"):
        PhotoCounter(Apples({0: "apple"}), device="cpu")
    with pytest.raises(InputError, match="fig"):
        PhotoCounter(Apples({1: "fig"}), embedded_estimator())
    for one in ("one.jpg", Image.new("RGB", (9, 9)), np.zeros((9, 9, 3), np.uint8), BytesIO(), 7):
        with pytest.raises(InputTypeError, match="several photos"):
            counter.count_many(one)
    with pytest.raises(TallyboxError, match=r"Apples.detect .*KeyError: 'no weights'"):
        PhotoCounter(Apples({0: "apple"})).count(sample_photos()[0])


def test_a_batch_mixes_files_and_images_in_memory_in_order(counter):
    path = sample_photos()[1]
    image = Image.open(BytesIO(path.read_bytes()))
    array = np.asarray(image)
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    batch = [path, path.read_bytes(), 7, array, tensor, np.zeros((3, 3)), image, BytesIO(path.read_bytes())]
    counted = counter.count_many(batch)
    assert [item.error is None for item in counted] == [True, True, False, True, True, False, True, True]
    expected = {name: p.to_dict() for name, p in counter.count(path).items()}
    for item in counted:
        assert item.error or {name: p.to_dict() for name, p in item.counts.items()} == expected
    assert counter.count(array)["dog"].count == 0
    with pytest.raises(InputError, match="horse"):
        counter.count(array)["hors"]


def test_threads_share_a_counter(counter):
    sources = [*sample_photos(), *(path.read_bytes() for path in sample_photos())]
    expected = [{name: p.to_dict() for name, p in counter.count(source).items()} for source in sources]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(counter.count, sources * 4))
    assert [{name: p.to_dict() for name, p in counts.items()} for counts in found] == expected * 4


def test_a_bad_file_alone_is_an_error(counter, tmp_path):
    (tmp_path / "text.jpg").write_text("no photo")
    for call in (counter.count, counter.explain):
        with pytest.raises(InputError, match=r"text.jpg"):
            call(tmp_path / "text.jpg")
