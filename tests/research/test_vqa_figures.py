from pathlib import Path

import pytest

from research import vqa_figures as vqa
from tallybox.runs import read_results

RESULTS = Path(__file__).parent.parent.parent / "docs" / "results"


@pytest.fixture(scope="module")
def experiments():
    return {name: read_results(RESULTS / "vqa" / name / "results.jsonl.gz") for name in ("photos", "questions")}


def test_committed_results_have_all_models_and_seeds(experiments):
    for results in experiments.values():
        assert {(run["model"], run["seed"]) for run in results} == {(m, s) for m in vqa.MODELS for s in range(4)}
        assert all(run["scored_on"] == "val" for run in results)


def test_figures_of_the_committed_results_are_drawn_alike_each_time(experiments, tmp_path):
    toy = [result for result in read_results(RESULTS / "toy" / "hard" / "results.jsonl") if result["noise"] > 0.9]
    for folder in (tmp_path / "one", tmp_path / "other"):
        vqa.draw_learning_curves(folder / "curves.svg", experiments)
        vqa.draw_trained_activations(folder / "activations.svg", experiments, toy, side_length=0.5)
        vqa.draw_trained_presence(folder / "presence.svg", experiments)
        vqa.draw_examples(folder / "examples.svg", experiments["photos"])
    drawn = sorted((tmp_path / "one").iterdir())
    assert [path.stem for path in drawn] == ["activations", "curves", "examples", "presence"]
    for path in drawn:
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes(), path.name


def test_markdown_has_a_column_for_each_score():
    four = [{"number": 44.6 + n / 10, "count": 51.5, "all": 64.8, "pair_all": 36.0 + n} for n in range(4)]
    lines = vqa.markdown_table({"nms": four}).splitlines()
    assert [line.count("|") for line in lines] == [8, 8, 8]
    assert lines[2].startswith("| + NMS | 44.75±0.1 |")


def test_examples_need_both_components(experiments, tmp_path):
    vqa.draw_examples(tmp_path / "examples.svg", [run for run in experiments["photos"] if run["model"] == "nms"])
    assert not (tmp_path / "examples.svg").exists()
