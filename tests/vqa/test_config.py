from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tallybox.errors import InputError
from tallybox.vqa import demo
from tallybox.vqa.config import ModelConfig, TrainingConfig, VqaConfig, read_configuration

CONFIGS = Path(__file__).parent.parent.parent / "configs"


def test_the_paper_s_file_says_what_the_defaults_say():
    assert read_configuration(CONFIGS / "vqa_v2_paper.toml") == VqaConfig()
    assert read_configuration(None) == VqaConfig()


def test_the_published_branch_differs_from_the_paper_in_padding_and_the_rate_of_the_component():
    paper, published = VqaConfig(), read_configuration(CONFIGS / "vqa_v2_published.toml")
    assert (paper.training.count_rate, paper.model.padding) == (1.0, "masked")
    assert published == VqaConfig(replace(paper.model, padding="published"), replace(paper.training, count_rate=2.0))


def test_the_demonstration_s_file_says_what_the_demonstration_does():
    assert read_configuration(CONFIGS / "vqa_demo.toml") == demo.CONFIG


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("vqa*.toml")), ids=lambda path: path.name)
def test_every_file_is_read(path):
    assert isinstance(read_configuration(path), VqaConfig)


def test_the_attention_may_have_a_dropout_of_its_own():
    assert VqaConfig.from_dict({"model": {"attention_dropout": 0}}).model.attention_dropout == 0
    assert VqaConfig.from_dict(asdict(VqaConfig())).model.attention_dropout is None


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
        ("[training]\nepoch = 3", r"\[training\] has no epoch; did you mean epochs\?"),
        ("[Training]", "no table Training; did you mean training"),
        ("[training]\nepochs = 3.5", r"epochs of \[training\] must be a whole number, but got 3.5"),
        ("[training]\nepochs = true", "must be a whole number"),
        ("[model]\nname = 'count'", "name must be one of baseline, nms, counter, presence, but got 'count'"),
        ("[model]\ndropout = 1.0", r"dropout must be in \[0, 1\)"),
        ("[model]\nattention_dropout = -0.1", r"attention_dropout must be in \[0, 1\), but got -0.1"),
        ("[model]\npadding = 'none'", "padding must be one of masked, published, but got 'none'"),
        ("[model]\nnms_iou_threshold = 1.5", "nms_iou_threshold must be between 0 and 1, but got 1.5"),
        ("[model]\nattention_dropout = 'none'", "attention_dropout of .* must be a number"),
        ("[training]\nattention_supervision = -1", "attention_supervision must be 0 or more, but got -1"),
        ("[training]\nbatch = 1", "batch must be 2 or more, as batch normalisation needs, but got 1"),
        ("[training]\nseed = -1", r"seed must be between 0 and 2\*\*63 - 1, but got -1"),
        ("[training]\nepochs = 0", "epochs must be at least 1"),
        ("[training]\nlearning_rate = 0.0", "learning_rate must be above 0"),
        ("[training]\nprecision = 'half'", "precision must be one of"),
        ("model = 3", "model must be a table"),
        ("a =", "must be a TOML file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_the_file(tmp_path, text, said):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as raised:
        read_configuration(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_name_of_tallybox_0_1_is_read():
    assert VqaConfig.from_dict({"model": {"name": "counting"}}) == VqaConfig()
