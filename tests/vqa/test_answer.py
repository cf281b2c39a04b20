import json

import numpy as np
import pytest
import torch

from tallybox.errors import InputError
from tallybox.vqa.answer import SHIPPED_MODEL, Answerer, SeenPhoto, count_named
from tallybox.vqa.batches import ResidentExamples
from tallybox.vqa.checkpoints import Checkpoint, load_model, read_checkpoint, write_checkpoint
from tallybox.vqa.config import ModelConfig, VqaConfig
from tallybox.vqa.data.splits import EncodedQuestions
from tallybox.vqa.data.store import FeatureStore, PhotoFeatures
from tallybox.vqa.model import DataSizes, VqaModel
from tests.support.ask import buses, riders, shipped_answerer
from tests.support.photos import embedded_detector

SMALL = {"embedding": 4, "question": 6, "attention": 5, "classifier": 7}


def write_model(folder, name: str = "presence", features: int = 80, temperature=1.0, **changed):
    torch.manual_seed(0)
    config = ModelConfig(name=name, **SMALL)
    sizes = DataSizes(words=3, answers=2, features=features, proposals=36)
    described = Checkpoint(VqaConfig(config), sizes, ("how", "many", "dogs"), ("1", "2"), 1, 1, temperature)
    weights = VqaModel(config, sizes).state_dict() | changed
    write_checkpoint(folder, described, ((f"model.{key}", value) for key, value in weights.items()))
    return folder


@pytest.mark.parametrize("word", ["horses", "people"])
def test_two_riders_and_their_horses_are_counted(word):
    assert shipped_answerer().ask(riders(), f"How many {word} are there?").answer == "2"


def test_answers_are_probabilities_the_highest_first():
    asked = shipped_answerer().ask(buses(), "Is there a dog in the car?")
    probabilities = [probability for _, probability in asked.answers]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 < sum(probabilities) <= 1 + 1e-6
    assert (asked.answer, asked.probability) == asked.answers[0]
    assert len(asked.answers) == 5
    assert asked.answer in ("yes", "no")
    assert json.loads(json.dumps(asked.to_dict()))["others"] == [list(other) for other in asked.answers[1:]]


def test_probabilities_are_those_of_logits_over_the_temperature(tmp_path):
    answers = []
    for temperature in (1.0, 2.0):
        answerer = Answerer(write_model(tmp_path, temperature=temperature), detector=embedded_detector())
        answers.append(dict(answerer.ask(riders(), "How many dogs?").answers))
    odds = [np.log(one["1"] / one["2"]) for one in answers]
    assert odds[0] == pytest.approx(2 * odds[1], rel=1e-4)


def test_a_photo_without_regions_is_answered():
    empty = PhotoFeatures("1", (640, 480), np.empty((0, 4), np.float32), np.empty((0, 80), np.float16))
    assert shipped_answerer().ask(SeenPhoto(empty, None), "How many dogs are there?").answer == "0"


@pytest.mark.parametrize(
    ("question", "counted"),
    [
        ("How many horses are there?", {"horse": 2}),
        ("how many people are riding?", {"person": 2}),
        ("How many zebus are there?", {}),
        ("Is there a horse?", {}),
    ],
)
def test_the_count_of_a_named_category_is_given_too(question, counted):
    found = count_named(shipped_answerer().look(riders()), question)
    assert {name: prediction.count for name, prediction in found.items()} == counted


def one_photo(regions: PhotoFeatures) -> FeatureStore:
    """Regions as the store has them that models are trained on."""
    offsets, size_wh = np.array([0, len(regions.features)]), np.array([regions.size_wh], np.float32)
    return FeatureStore(["1"], size_wh, offsets, regions.boxes_xyxy, [regions.features])


def test_a_photo_is_seen_as_in_training():
    answerer = shipped_answerer()
    seen = answerer.look(buses())
    asked = answerer.ask(seen, "How many people are there?")
    words = np.array([answerer.vocabulary.encode_question(asked.question)])
    question = EncodedQuestions(np.array([1]), np.array([0]), words, np.array([words.shape[1]]), None)
    examples = ResidentExamples(question, one_photo(seen.regions), torch.device("cpu"), torch.float32, length=0)
    with torch.no_grad():
        logits, _ = answerer.model(next(examples.batches([np.array([0])])).batch)
    assert (logits[0] / answerer.temperature).softmax(-1).max().item() == asked.probability


def test_the_shipped_model_is_small_and_holds_nothing_of_its_training_but_weights():
    assert SHIPPED_MODEL.stat().st_size < 2_000_000
    described, tensors = read_checkpoint(SHIPPED_MODEL)
    assert described.config.model.name == "presence"
    assert described.temperature != 1, "it is calibrated"
    assert all(name.startswith("model.") for name in tensors)
    large = {name: value for name, value in tensors.items() if value.numel() > 10_000}
    assert {value.dtype for value in large.values()} == {torch.float16}
    assert next(load_model(SHIPPED_MODEL)[0].parameters()).dtype == torch.float32


@pytest.mark.parametrize("name", ["baseline", "nms", "counter", "presence"])
def test_every_kind_of_model_answers(tmp_path, name):
    answerer = Answerer(write_model(tmp_path, name), detector=embedded_detector())
    assert answerer.ask(buses(), "How many dogs?").answer in ("1", "2")


def test_models_of_other_features_and_damaged_ones_are_refused(tmp_path):
    with pytest.raises(InputError, match="64 features"):
        Answerer(write_model(tmp_path, features=64), detector=embedded_detector())
    with pytest.raises(InputError, match="size mismatch"):
        Answerer(write_model(tmp_path, **{"classifier.to_answers.bias": torch.zeros(1)}), detector=embedded_detector())
