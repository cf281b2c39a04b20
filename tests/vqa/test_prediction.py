from dataclasses import replace

import pytest
import torch

from tallybox.errors import InputError
from tallybox.vqa import read_answers
from tallybox.vqa.batches import open_training_data
from tallybox.vqa.checkpoints import Checkpoint, load_model, write_checkpoint
from tallybox.vqa.config import ModelConfig, VqaConfig
from tallybox.vqa.data.official import official_files
from tallybox.vqa.data.prepare import prepare
from tallybox.vqa.data.splits import open_records
from tallybox.vqa.figures import explained
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import open_for_model, predict_run, prepared_folder, run_settings, write_results
from tests.support.vqa_files import small_set
from tests.support.vqa_tiny import CPU

SMALL = {"embedding": 8, "question": 12, "attention": 9, "classifier": 10, "dropout": 0.0}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vqa")
    files = small_set(folder / "files")
    prepare(official_files(files), [files / "features.tsv"], folder / "prepared")
    return folder / "prepared"


def tensors_of(model: VqaModel) -> list[tuple[str, torch.Tensor]]:
    return [(f"model.{name}", value) for name, value in model.state_dict().items()]


def test_examples_and_predict_read_questions_with_the_vocabulary_of_the_model(tmp_path, prepared):
    data, config = open_training_data(prepared, "train"), VqaConfig(ModelConfig(**SMALL))
    torch.manual_seed(0)
    model = VqaModel(config.model, data.sizes)
    for weight in (*model.question.parameters(), model.classifier.from_question.weight):
        weight.data *= 5  # so that the answers depend on the words
    same = Checkpoint(config, data.sizes, data.words, data.answers, 1, 1)
    write_checkpoint(tmp_path / "same", same, tensors_of(model))
    # The same model, with its words numbered in the opposite order.
    embedding = model.question.embedding.weight.data
    embedding[1:] = embedding[1:].flip(0)
    write_checkpoint(tmp_path / "other", replace(same, words=data.words[::-1]), tensors_of(model))

    records = open_records(prepared, "val")
    question_ids = [record.question_id for record in records]
    runs = [load_model(tmp_path / name) for name in ("same", "other")]
    data = [(*open_for_model(checkpoint, prepared, "val"), records) for _, checkpoint in runs]
    expected, shown = (explained(*run, *read, question_ids) for run, read in zip(runs, data, strict=True))
    assert [example["count"] for example in shown] == pytest.approx([example["count"] for example in expected])
    answers = {example["question_id"]: example["prediction"] for example in shown}
    assert answers == predict_run(tmp_path / "other", split="val", device=CPU, prepared=prepared)[1]
    assert len(set(answers.values())) > 1


@pytest.mark.parametrize("content", ["{", '{"config": 3}'])
def test_a_config_that_is_damaged_or_of_another_program_is_said_in_one_line(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    for run in (tmp_path, tmp_path / "checkpoint.safetensors"):
        with pytest.raises(InputError, match=r"config\.json"):
            run_settings(run)
    with pytest.raises(InputError, match="--prepared"):
        prepared_folder(tmp_path / "published.pth", None)  # a file beside it says nothing about a published one


def test_answers_are_read_as_they_were_written(tmp_path):
    write_results({3: "2", 1: "yes"}, tmp_path / "results.json")
    assert read_answers(tmp_path / "results.json") == {3: "2", 1: "yes"}
    (tmp_path / "other.json").write_text('[{"question": 3}]')
    with pytest.raises(InputError, match=r"other\.json"):
        read_answers(tmp_path / "other.json")
