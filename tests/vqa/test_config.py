from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tallybox.errors import InputError
from tallybox.vqa.config import ModelConfig, TrainingConfig, VqaConfig, read_configuration

CONFIGS = Path(__file__).parent.parent.parent / "configs"


def test_the_paper_s_file_says_what_the_defaults_say():
    assert read_configuration(CONFIGS / "vqa_v2_paper.toml") == VqaConfig()
    assert read_configuration(None) == VqaConfig()


@pytest.mark.parametrize(
    ("name", "count_rate"), [("vqa_v2_published.toml", 1.0), ("vqa_v2_published_trainval.toml", 2.0)]
)
def test_the_published_branches_differ_from_the_paper_in_padding_and_the_rate_of_the_component(name, count_rate):
    paper, published = VqaConfig(), read_configuration(CONFIGS / name)
    assert (paper.training.count_rate, paper.model.padding) == (1.0, "masked")
    training = replace(paper.training, count_rate=count_rate)
    assert published == VqaConfig(replace(paper.model, padding="published"), training)


def test_values_are_overruled_one_by_one(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('[model]\nname = "nms"\nquestion = 7\n[training]\nlearning_rate = 1\n')
    config = read_configuration(path, model={"name": "counter", "question": None}, training={"seed": 3})
    assert config.model == ModelConfig(name="counter", question=7)
    assert config.training == TrainingConfig(learning_rate=1.0, seed=3)
    assert VqaConfig.from_dict(asdict(config)) == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[training]\nepoch = 3", r"'epochs'"),
        ("[Training]", "'training'"),
        ("[training]\nepochs = 3.5", "epochs must"),
        ("[training]\nbatch = 1", "batch"),
        ("[training]\nprecision = 'half'", "precision"),
        ("[model]\nname = 'countr'", "'counter'"),
        ("[model]\npadding = 'published'\nlevel = 'mean'", "level"),
        ("model = 3", "table"),
        ("a =", "TOML"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_the_file(tmp_path, text, said):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        read_configuration(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
