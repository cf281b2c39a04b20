"""A checkpoint as the published code writes it: made here from its names and shapes, and computed with by hand."""

import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from tallybox import compat
from tallybox.errors import InputError
from tallybox.vqa.batches import StreamedExamples
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.data.splits import EncodedQuestions
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.model import VqaModel
from tallybox.vqa.prediction import answer
from tests.support.published_vqa import literal_answer, published_count
from tests.support.tolerances import FLOAT32_FEATURES

WORDS, ANSWERS, EMBEDDING, QUESTION, FEATURES, HIDDEN, CLASSIFIER, OBJECTS = 7, 5, 4, 6, 9, 8, 10, 3


def published_layers() -> nn.ModuleDict:
    torch.manual_seed(3)
    parts = {
        "text": {"embedding": nn.Embedding(WORDS + 1, EMBEDDING), "lstm": nn.GRU(EMBEDDING, QUESTION, num_layers=1)},
        "attention": {
            "v_conv": nn.Conv2d(FEATURES, HIDDEN, 1, bias=False),
            "q_lin": nn.Linear(QUESTION, HIDDEN),
            "x_conv": nn.Conv2d(HIDDEN, 2, 1),
        },
        "classifier": {
            "lin11": nn.Linear(2 * FEATURES, CLASSIFIER),
            "lin12": nn.Linear(QUESTION, CLASSIFIER),
            "lin2": nn.Linear(CLASSIFIER, ANSWERS),
            "lin_c": nn.Linear(OBJECTS + 1, CLASSIFIER),
            "bn": nn.BatchNorm1d(CLASSIFIER),
            "bn2": nn.BatchNorm1d(CLASSIFIER),
        },
    }
    layers = nn.ModuleDict({name: nn.ModuleDict(part) for name, part in parts.items()})
    layers["counter"] = compat.Counter(OBJECTS)
    with torch.no_grad():
        for activation in layers["counter"].f:
            activation.weight[1:] = torch.rand(16) + 0.1
        for name in ("bn", "bn2"):
            layers["classifier"][name].running_mean.uniform_(-1, 1)
            layers["classifier"][name].running_var.uniform_(0.5, 2)
    return layers.eval()


VOCABULARY = {
    "question": {f"word{k}": k for k in range(1, WORDS + 1)},
    "answer": {f"answer{k}": k for k in reversed(range(ANSWERS))},
}


def write(path, **changes):
    content = {"name": "n", "weights": published_layers().state_dict(), "vocab": VOCABULARY, "src": "x", "config": {}}
    torch.save(content | changes, path)
    return path


def test_a_published_checkpoint_has_its_vocabulary_and_sizes(tmp_path):
    _, checkpoint = load_model(write(tmp_path / "published.pth", config={"output_size": 6}))
    assert checkpoint.words == tuple(f"word{k}" for k in range(1, WORDS + 1))
    assert checkpoint.answers == tuple(f"answer{k}" for k in range(ANSWERS))
    assert checkpoint.config.model.name == "counter"
    assert checkpoint.config.model.max_objects == OBJECTS


def test_files_of_old_versions_and_of_data_parallel_training_load(tmp_path):
    weights = published_layers().state_dict()
    old = {f"module.{key}": value for key, value in weights.items() if "num_batches" not in key}
    torch.save({"weights": old, "vocab": VOCABULARY}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    model, _ = load_model(tmp_path / "old.pth")
    assert torch.equal(model.question.embedding.weight, weights["text.embedding.weight"])


def photos_of_all_sizes(questions: int = 60, most: int = 40) -> tuple[FeatureStore, EncodedQuestions]:
    random = np.random.default_rng(5)
    offsets = np.concatenate(([0], random.integers(2, most + 1, 20).cumsum()))
    corners = random.uniform(0, 400, (offsets[-1], 2))
    boxes = np.concatenate((corners, corners + random.uniform(20, 300, corners.shape)), 1).astype(np.float32)
    features = random.normal(size=(offsets[-1], FEATURES)).astype(np.float16)
    store = FeatureStore([str(k) for k in range(20)], np.full((20, 2), 800, np.float32), offsets, boxes, [features])
    lengths = random.integers(1, 5, questions)
    words = random.integers(0, WORDS + 1, (questions, 4)) * (np.arange(4) < lengths[:, None])
    asked = EncodedQuestions(np.arange(questions), random.integers(0, 20, questions), words, lengths, None)
    return store, asked


@pytest.mark.parametrize("counts", [True, False], ids=["counter", "baseline"])
@pytest.mark.parametrize("proposals", [None, 40])  # the largest photo has no padding then
def test_padding_takes_part_as_in_the_equations_question_by_question(tmp_path, counts, proposals):
    weights = dict(published_layers().state_dict())
    for layer in ("attention.q_lin", "attention.x_conv", "classifier.lin11", "classifier.lin_c"):
        weights[f"{layer}.weight"] = 6 * weights[f"{layer}.weight"]
    if not counts:
        weights |= {
            "classifier.bn2.running_mean": torch.zeros(CLASSIFIER),
            "classifier.bn2.running_var": torch.ones(CLASSIFIER),
        }
    settings = {} if proposals is None else {"output_size": proposals}
    store, asked = photos_of_all_sizes()
    examples = StreamedExamples(asked, store, torch.device("cpu"), torch.float64, 1.0)
    model, _ = load_model(write(tmp_path / "published.pth", weights=weights, config=settings))
    with torch.no_grad():  # without the mean over questions all of them have one answer
        usual = model.double()(next(examples.batches([np.arange(len(asked))])).batch)[0].mean(0)
    weights["classifier.lin2.bias"] = weights["classifier.lin2.bias"] - usual.float()
    model, checkpoint = load_model(write(tmp_path / "published.pth", weights=weights, config=settings))
    assert checkpoint.config.model.padding == "published"
    answers = answer(model, checkpoint.answers, examples)
    masked = VqaModel(replace(checkpoint.config.model, padding="masked"), checkpoint.sizes).double().eval()
    masked.load_state_dict(model.state_dict())
    others = answer(masked, checkpoint.answers, examples)
    for row in range(len(asked)):
        start, end = store.offsets[asked.images[row] : asked.images[row] + 2]
        words = asked.words[row, : asked.lengths[row]].tolist()
        features = store.features_of(int(asked.images[row])).astype(np.float64)
        features /= np.linalg.norm(features, axis=1, keepdims=True) + 1e-12
        boxes, count = store.boxes_xyxy[start:end].astype(np.float64), partial(published_count, weights)
        expected, _ = literal_answer(weights, words, features, boxes, proposals or 100, count if counts else None)
        with torch.no_grad():
            logits = model(next(examples.batches([np.array([row])])).batch)[0][0]
        # `scale_features` works in float32.
        torch.testing.assert_close(logits, torch.from_numpy(expected), **FLOAT32_FEATURES._asdict())
        assert answers[row] == f"answer{expected.argmax()}"
    assert len(set(answers.values())) > 2
    assert answers != others


def test_a_baseline_that_still_holds_a_counter_is_told_by_statistics_that_never_moved(tmp_path):
    layers = published_layers()
    layers["classifier"]["bn2"].reset_running_stats()
    path = write(tmp_path / "baseline.pth", weights=layers.state_dict())
    model, checkpoint = load_model(path)
    assert (checkpoint.config.model.name, model.count) == ("baseline", None)
    layers["classifier"]["bn2"].running_mean[3] = 0.1  # one that moved is enough
    model, checkpoint = load_model(write(tmp_path / "counter.pth", weights=layers.state_dict()))
    assert checkpoint.config.model.name == "counter"
    assert torch.equal(model.count.counter.weight[0], torch.stack([f.weight[1:] for f in layers["counter"].f[:8]]))


class Harmful:
    def __reduce__(self):
        return (print, ("this must not be printed",))


def test_nothing_in_a_file_is_run(tmp_path, capsys):
    with (tmp_path / "harmful.pth").open("wb") as file:
        torch.save({"weights": {}, "vocab": Harmful()}, file)
    with pytest.raises(InputError, match=r"harmful\.pth") as raised:
        load_model(tmp_path / "harmful.pth")
    assert "weights_only" not in str(raised.value), "torch's advice would run the content"
    (tmp_path / "plain.pth").write_bytes(pickle.dumps(Harmful(), protocol=2))
    with pytest.raises(InputError):
        load_model(tmp_path / "plain.pth")
    assert "must not be printed" not in capsys.readouterr().out


def test_what_does_not_fit_is_said_with_the_file(tmp_path):
    gap = {"question": {"a": 1, "b": 3}, "answer": VOCABULARY["answer"]}
    few = {"question": {"a": 1}, "answer": VOCABULARY["answer"]}
    short = dict(published_layers().state_dict())
    del short["attention.q_lin.weight"]
    for changes, said in (
        ({"vocab": gap}, "gaps"),
        ({"vocab": few}, "vocabulary"),
        ({"weights": short}, "attention.from_question.weight"),
        ({"weights": {"other.weight": torch.zeros(1)}}, "other.weight"),
    ):
        with pytest.raises(InputError, match=said) as raised:
            load_model(write(tmp_path / "wrong.pth", **changes))
        assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match=r"none\.pth"):
        load_model(tmp_path / "none.pth")
