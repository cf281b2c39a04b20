from dataclasses import replace

import pytest
import torch

from tallybox.errors import InputError
from tallybox.files import read_tensors, write_tensors
from tallybox.vqa.checkpoints import FILE, Checkpoint, load_model, read_checkpoint, write_checkpoint
from tallybox.vqa.config import ModelConfig, VqaConfig
from tests.support.vqa_batches import SIZES, SMALL, random_batch, small_model


def checkpoint(name: str = "counter") -> Checkpoint:
    words, answers = (tuple(map(str, range(number))) for number in (SIZES.words, SIZES.answers))
    return Checkpoint(VqaConfig(ModelConfig(name=name, **SMALL)), SIZES, words, answers, epoch=2, steps=9)


def write(folder, model, described):
    write_checkpoint(folder, described, ((f"model.{name}", value) for name, value in model.state_dict().items()))


@pytest.mark.parametrize("name", ["baseline", "nms", "counter", "presence"])
def test_a_model_comes_back_as_it_was(tmp_path, name):
    model = small_model(name, dtype=torch.float32).eval()
    write(tmp_path, model, checkpoint(name))
    again, described = load_model(tmp_path)
    assert described == checkpoint(name)
    assert not list(tmp_path.glob("*.unfinished"))
    batch = random_batch()
    batch = batch._replace(features=batch.features.float(), boxes=batch.boxes.float())
    assert torch.equal(again(batch)[0], model(batch)[0])
    assert load_model(tmp_path / FILE)[1] == described


@pytest.mark.parametrize(("name", "value", "default"), [("split", "trainval", ""), ("temperature", 1.5, 1)])
def test_split_and_temperature_come_back_and_have_defaults_in_older_files(tmp_path, name, value, default):
    write(tmp_path, small_model("baseline"), replace(checkpoint("baseline"), **{name: value}))
    assert getattr(read_checkpoint(tmp_path)[0], name) == value
    _change_header(tmp_path / FILE, lambda header: header.pop(name))
    assert getattr(read_checkpoint(tmp_path)[0], name) == default


def _change_header(path, change):
    header, tensors = read_tensors(path)
    change(header)
    write_tensors(path, tensors, header)


def test_what_is_no_checkpoint_is_said_in_one_line(tmp_path):
    with pytest.raises(InputError, match=FILE):
        read_checkpoint(tmp_path)
    (tmp_path / FILE).write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    with pytest.raises(InputError, match=FILE):
        read_checkpoint(tmp_path)
    other = checkpoint("counter")
    write(tmp_path, small_model("baseline"), other)
    with pytest.raises(InputError, match="counter model") as raised:
        load_model(tmp_path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["sizes"].update(features=10**30),
        lambda header: header["config"]["model"].update(question=10**9),
        lambda header: header.pop("words"),
        lambda header: header.update(kind="tallybox.estimator"),
    ],
)
def test_a_wrong_header_ends_in_one_line_and_takes_no_memory(tmp_path, change):
    write(tmp_path, small_model("counter"), checkpoint())
    _change_header(tmp_path / FILE, change)
    with pytest.raises(InputError, match=str(tmp_path)) as raised:
        load_model(tmp_path)
    assert "\n" not in str(raised.value)
