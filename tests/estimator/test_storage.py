import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.synthetic_photos import made_up_photos
from safetensors.torch import load, save, save_file

from tallybox import CountEstimator, files
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.calibration import AS_PREDICTED, Prevalence
from tallybox.estimator.fitted import TotalCalibration
from tallybox.estimator.storage import save_fitted
from tests.support.estimators import small_estimator


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "dogs.estimator"
    small_estimator().save(path)
    return path


def change_header(path, change, *, checksum):
    """Write the file again with another header and, if asked for, the checksum of that."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    stored = json.loads(metadata["tallybox"])
    header = json.loads(stored["header"])
    change(header)
    header = json.dumps(header)
    digest = files._digest(header, load(content)) if checksum else stored["sha256"]
    path.write_bytes(save(load(content), {"tallybox": json.dumps({"header": header, "sha256": digest})}))


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
    ("change", "message", "checksum"),
    [
        (lambda header: header.update(kind="cake"), "it holds a 'cake'", True),
        (lambda header: header.update(version=99), "version 99", True),
        (lambda header: header["config"].update(members=10**9), "members must be at most 4096, but got", True),
        (lambda header: header.update(category_ids=[*range(5000)]), "categories must be at most 4096", True),
        (lambda header: header.pop("excess"), "'excess'", True),
        (lambda header: header["config"].update(members=10**9), "content was changed", False),
        (lambda header: header.update(levels=[0.5] * 4), "content was changed", False),
    ],
)
def test_a_changed_header_is_one_clear_line(file, change, message, checksum):
    change_header(file, change, checksum=checksum)
    with pytest.raises(InputError, match=message) as caught:
        CountEstimator.load(file)
    assert len(str(caught.value).splitlines()) == 1
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e308, -1e308, 2**63, -1])
@pytest.mark.parametrize(
    "change",
    [
        lambda header, value: header.update(excess=value),
        lambda header, value: header["prevalence"].update(undetected=value),
        lambda header, value: header["prevalence"]["weights"].__setitem__(1, value),
        lambda header, value: header["category_ids"].__setitem__(0, value),
        lambda header, value: header["interval_levels"].__setitem__(0, value),
        lambda header, value: header["baselines"]["nms"]["mae"]["overall"].__setitem__(0, value),
    ],
    ids=["excess", "undetected", "weights", "category_ids", "levels", "thresholds"],
)
def test_numbers_that_cannot_be_right_are_refused_or_count_finitely(file, change, value):
    change_header(file, lambda header: change(header, value), checksum=True)
    try:
        loaded = CountEstimator.load(file)
    except InputError:
        return
    for photo in made_up_photos(3, seed=8)[0]:
        for prediction in loaded.predict(photo, [1, 18]).values():
            assert 0 <= prediction.low <= prediction.count <= prediction.high
            assert 0 <= prediction.expected < np.inf


@pytest.mark.parametrize("value", [float("nan"), 3e38, -3e38])
def test_weights_that_would_overflow_are_refused(file, value):
    header, tensors = files.read_tensors(file)
    name = next(name for name in tensors if name.endswith("from_summary.0.weight"))
    tensors[name] = torch.full_like(tensors[name], value)
    files.write_tensors(file, tensors, header)
    with pytest.raises(InputError, match=r"a weight is not a number or beyond 1e\+06"):
        CountEstimator.load(file)


@pytest.mark.parametrize(
    "changed",
    [
        {"prevalence": Prevalence((float("nan"),) * len(AS_PREDICTED.weights), 0.1)},
        {"excess": float("inf")},
        {"totals": TotalCalibration(scale=float("nan"))},
    ],
    ids=["prevalence", "excess", "totals"],
)
def test_what_could_not_be_loaded_is_not_written(tmp_path, changed):
    path = tmp_path / "dogs.estimator"
    with pytest.raises(TallyboxError, match="an estimator must hold numbers that can be loaded again, but: "):
        save_fitted(replace(small_estimator().fitted, **changed), path)
    assert not path.exists()


def test_a_changed_weight_is_noticed(file):
    content = bytearray(file.read_bytes())
    content[-3] ^= 64
    file.write_bytes(content)
    with pytest.raises(InputError, match="content was changed"):
        CountEstimator.load(file)


def test_foreign_and_damaged_files_are_one_clear_line(tmp_path, file):
    foreign = tmp_path / "foreign.safetensors"
    save_file({"weight": torch.ones(2)}, foreign)
    text = tmp_path / "text.estimator"
    text.write_text("not an estimator")
    empty = tmp_path / "empty.estimator"
    empty.write_bytes(b"")
    cut = tmp_path / "cut.estimator"
    cut.write_bytes(file.read_bytes()[:-10])
    pickled = tmp_path / "pickled.pt"
    torch.save({"weight": torch.ones(2)}, pickled)
    for path in (foreign, text, empty, cut, pickled):
        with pytest.raises(InputError, match="must be an estimator that tallybox fit wrote, but: ") as caught:
            CountEstimator.load(path)
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(InputError, match="is not there"):
        CountEstimator.load(tmp_path / "nowhere")


def test_two_saves_of_one_fit_are_identical(file, tmp_path):
    again = tmp_path / "again" / "dogs.estimator"
    small_estimator().save(again)
    assert again.read_bytes() == file.read_bytes()
    CountEstimator.load(file).save(again)
    assert again.read_bytes() == file.read_bytes()


def test_saving_leaves_no_unfinished_file(file):
    assert [path.name for path in file.parent.iterdir()] == [file.name]
