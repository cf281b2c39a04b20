from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load, save, save_file

from tallybox import CountEstimator
from tallybox.bench.photos import made_up_photos
from tallybox.errors import InputError
from tests.support.estimators import small_estimator


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "dogs.estimator"
    small_estimator().save(path)
    return path


def changed(path, change):
    """Write the file anew with another header."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    header = json.loads(metadata["tallybox"])
    change(header)
    path.write_bytes(save(load(content), {**metadata, "tallybox": json.dumps(header)}))


def test_what_is_loaded_counts_exactly_as_what_was_saved(file):
    photos = made_up_photos(10, seed=8)[0]
    loaded = CountEstimator.load(file)
    for one, other in zip(small_estimator().predict_many(photos), loaded.predict_many(photos), strict=True):
        assert one.keys() == other.keys()
        for category, said in one.items():
            np.testing.assert_array_equal(said.probabilities, other[category].probabilities)
            assert said.to_dict() == other[category].to_dict()
    assert loaded.fitted.baselines == small_estimator().fitted.baselines
    assert loaded.category_name(18) == "dog"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda header: header.update(kind="cake"), "it holds a 'cake'"),
        (lambda header: header.update(version=99), "version 99"),
        (lambda header: header["config"].update(members=10**9), "content was changed"),
        (lambda header: header.update(levels=[0.5] * 4), "content was changed"),
    ],
)
def test_a_changed_header_is_one_clear_line(file, change, said):
    changed(file, change)
    with pytest.raises(InputError, match=said) as caught:
        CountEstimator.load(file)
    assert len(str(caught.value).splitlines()) == 1
    assert str(file) in str(caught.value)


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


def test_saving_leaves_no_unfinished_file(file):
    assert [path.name for path in file.parent.iterdir()] == [file.name]
