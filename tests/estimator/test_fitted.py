from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.synthetic_photos import made_up_photos
from safetensors.torch import save_file

from tallybox import CountEstimator, Detections
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.fitted import TotalCalibration, save_fitted
from tallybox.files import read_tensors, write_tensors
from tests.support.estimators import small_estimator


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "dogs.estimator"
    small_estimator().save(path)
    return path


def change_header(path, change):
    """Write the file again with another header, and its checksum."""
    header, tensors = read_tensors(path)
    change(header)
    write_tensors(path, tensors, header)


def test_what_is_loaded_counts_exactly_as_what_was_saved(file):
    photos = made_up_photos(10, seed=8)[0]
    loaded = CountEstimator.load(file)
    for before, after in zip(small_estimator().predict_many(photos), loaded.predict_many(photos), strict=True):
        assert before.keys() == after.keys()
        for category, prediction in before.items():
            np.testing.assert_array_equal(prediction.probabilities, after[category].probabilities)
            assert prediction.to_dict() == after[category].to_dict()
    assert loaded.fitted.baselines == small_estimator().fitted.baselines
    assert loaded.category_name(18) == "dog"


@pytest.mark.parametrize(
    ("change", "noun"),
    [
        (lambda header: header.update(kind="cake"), "cake"),
        (lambda header: header.update(version=3), "version 3"),
        (lambda header: header.pop("tail_mean"), "tail_mean"),
    ],
)
def test_a_changed_header_is_one_clear_line(file, change, noun):
    change_header(file, change)
    with pytest.raises(InputError, match=noun) as caught:
        CountEstimator.load(file)
    assert len(str(caught.value).splitlines()) == 1
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("changed", [{"tail_mean": float("inf")}, {"totals": TotalCalibration(scale=float("nan"))}])
def test_numbers_that_are_not_finite_are_not_written(tmp_path, changed):
    path = tmp_path / "dogs.estimator"
    with pytest.raises(TallyboxError, match="diverged"):
        save_fitted(replace(small_estimator().fitted, **changed), path)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"not an estimator", "cut", "foreign", "pickled"])
def test_foreign_and_damaged_files_are_one_clear_line(tmp_path, file, content):
    path = tmp_path / "other"
    if content == "foreign":
        save_file({"weight": torch.ones(2)}, path)
    elif content == "pickled":
        torch.save({"weight": torch.ones(2)}, path)
    else:
        path.write_bytes(file.read_bytes()[:-10] if content == "cut" else content)
    with pytest.raises(InputError, match="not an estimator") as caught:
        CountEstimator.load(path)
    assert len(str(caught.value).splitlines()) == 1


def test_two_saves_of_one_fit_are_identical(file, tmp_path):
    again = tmp_path / "again" / "dogs.estimator"
    small_estimator().save(again)
    assert again.read_bytes() == file.read_bytes()
    CountEstimator.load(file).save(again)
    assert again.read_bytes() == file.read_bytes()


def test_an_estimator_of_named_categories_refuses_numbers_without_names(tmp_path):
    images, _ = made_up_photos(12, seed=4)
    names = {1: "bolt", 2: "nut"}
    named = [replace(image, category_ids=image.category_ids % 2 + 1, category_names=names) for image in images]
    counts = {(image.image_id, "bolt"): len(image.scores) // 4 for image in named}
    path = tmp_path / "own.safetensors"
    CountEstimator(members=2).fit(named, counts).save(path)
    estimator = CountEstimator.load(path)
    assert estimator.predict(named[0], ["bolt"])
    assert estimator.predict(Detections.empty()) == {}, "without boxes there is nothing to name"
    with pytest.raises(InputError, match="bolt, nut"):
        estimator.predict(replace(named[0], category_names=None))
