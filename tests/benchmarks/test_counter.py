import json

import pytest
import torch
from click.testing import CliRunner

from benchmarks import counter, toy
from tallybox.cli import cli
from tallybox.errors import TallyboxError
from tallybox.toy.training import ToyConfig

CPU = torch.device("cpu")


def test_the_command_prints_one_json_object_and_writes_it(monkeypatch, tmp_path):
    monkeypatch.setattr(counter, "CPU_SIZES", ((4, 3),))
    out = tmp_path / "result.json"
    result = CliRunner().invoke(
        cli, ["bench", "counter", "--device", "cpu", "--seconds", "0.01", "--json", "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed == json.loads(out.read_text())
    assert {row["case"] for row in printed["rows"]} == {
        f"{component}cpu {passes} 4x3" for component in ("", "presence ") for passes in ("forward", "forward+backward")
    }
    for row in printed["rows"]:
        assert row["median_ms"] > 0
        assert row["speedup"] == pytest.approx(row["reference_ms"] / row["median_ms"], rel=0.1, abs=0.1)
    assert printed["machine"]["torch"] == torch.__version__


def test_a_backend_that_disagrees_is_not_timed(monkeypatch):
    honest = counter.Counter.forward

    def wrong(layer, *arguments):
        return honest(layer, *arguments) * (1.01 if layer.backend == "cpu" else 1)

    monkeypatch.setattr(counter.Counter, "forward", wrong)
    with pytest.raises(TallyboxError, match="must agree with the reference before it is timed, but its features"):
        counter.check_agreement(counter.PAPER, "cpu", CPU, 5)


@pytest.mark.parametrize("component", [counter.PAPER, counter.PRESENCE], ids=["counter", "presence"])
def test_a_single_box_agrees_although_its_boxes_have_no_gradient(component):
    counter.check_agreement(component, "cpu", CPU, 1)


def test_nothing_gives_what_the_component_gives_in_shape():
    calls = [counter.random_call(layer, "auto", 4, 3, CPU) for layer in (counter.NOTHING, counter.PAPER)]
    nothing, something = (call.forward_backward() for call in calls)
    assert [value.shape for value in nothing.values()] == [value.shape for value in something.values()]


def test_the_toy_task_is_timed_after_both_backends_learned_the_same(monkeypatch):
    monkeypatch.setattr(toy, "ToyConfig", lambda **options: ToyConfig(**{"iterations": 2, "batch": 4, **options}))
    rows = list(toy.bench_toy(CPU, seconds=0.01))
    assert [row.case.split(",")[0] for row in rows] == ["a step", "all of 1 settings"]
    assert all(row.median_ms > 0 for row in rows)


def test_backends_that_learn_differently_are_not_timed(monkeypatch):
    monkeypatch.setattr(toy, "AGREEMENT", 0.0)
    with pytest.raises(TallyboxError, match="must learn the same before they are timed"):
        toy.check_learning(CPU)
