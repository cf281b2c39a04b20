from pathlib import Path

import pytest
import torch

from tallybox.runs import read_results
from tallybox.vqa.checkpoints import load_model, read_checkpoint
from tallybox.vqa.config import VqaConfig
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.prediction import answer
from tallybox.vqa.scoring import Scorer
from tallybox.vqa.training import Validator, train
from tests.support.vqa_tiny import CPU, tiny_config, tiny_data

EPOCHS = 6


def validator(folder: Path, config: VqaConfig, every: int = 1) -> Validator:
    data = tiny_data(seed=1)
    records = [
        QuestionRecord(
            int(key), int(image), "How many?", tuple(data.answers[k] if k >= 0 else "other" for k in given), "number"
        )
        for key, image, given in zip(
            data.questions.question_ids, data.questions.images, data.questions.answers, strict=True
        )
    ]
    return Validator(folder, config, data, Scorer(records, [(100, 101)]), CPU, every)


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("validated") / "run"
    config = tiny_config(epochs=EPOCHS)
    train(tiny_data(), folder, config, device=CPU, on_epoch=validator(folder, config))
    return folder


def test_a_line_an_epoch_with_the_official_scores(validated):
    lines = read_results(validated / "validation.jsonl")
    assert [(line["epoch"], line["step"]) for line in lines] == [(epoch, 5 * epoch) for epoch in range(1, EPOCHS + 1)]
    model, checkpoint = load_model(validated)
    scorer = validator(validated, checkpoint.config)
    expected = scorer.scorer.scores(answer(model, checkpoint.answers, scorer.examples))
    assert {name: lines[-1][name] for name in expected} == expected


def test_validation_is_as_rare_as_wanted_comes_at_the_end_and_changes_no_training(tmp_path):
    scored = validator(tmp_path / "seen", tiny_config(), every=2)
    train(tiny_data(), tmp_path / "seen", tiny_config(), device=CPU, on_epoch=scored)
    assert [line["epoch"] for line in read_results(tmp_path / "seen" / "validation.jsonl")] == [2, 3]
    train(tiny_data(), tmp_path / "alone", tiny_config(), device=CPU)
    tensors, expected = (read_checkpoint(tmp_path / name)[1] for name in ("seen", "alone"))
    assert all(torch.equal(tensors[name], value) for name, value in expected.items())
    assert not (tmp_path / "alone" / "validation.jsonl").exists()


def test_interrupted_and_resumed_it_has_the_same_lines(tmp_path, validated):
    class StoppedError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 18:
            raise StoppedError

    config = tiny_config(epochs=EPOCHS)
    scored = validator(tmp_path, config)
    with pytest.raises(StoppedError):
        train(tiny_data(), tmp_path, config, device=CPU, on_epoch=scored, on_progress=stop)
    train(tiny_data(), tmp_path, config, device=CPU, on_epoch=scored)
    assert (tmp_path / "validation.jsonl").read_bytes() == (validated / "validation.jsonl").read_bytes()
