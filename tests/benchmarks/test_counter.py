import pytest
import torch

from benchmarks import counter
from tallybox.errors import TallyboxError

CPU = torch.device("cpu")


@pytest.mark.slow
def test_both_layers_are_timed_with_all_boxes_and_with_the_papers_ten():
    rows = list(counter.bench_counter(CPU, seconds=0.01, cpu_sizes=((4, 3), (2, 12)), with_compiler=False))
    passes = ("forward", "forward+backward")
    assert {row.case for row in rows} == {
        *(f"{layer}cpu {name} {size}" for layer in ("", "presence ") for name in passes for size in ("4x3", "2x12")),
        *(f"cpu {name} 2x12 n=10" for name in passes),
        *(f"{layer}cpu {call}" for layer in ("", "presence ") for call in ("first-call 4x3", "new-shape 3x2")),
    }
    for row in rows:
        assert row.median_ms > 0
        assert row.speedup == pytest.approx(row.reference_ms / row.median_ms, rel=0.1, abs=0.1)


def test_a_backend_that_disagrees_is_not_timed(monkeypatch):
    honest = counter.Counter.forward

    def wrong(layer, *arguments):
        return honest(layer, *arguments) * (1.01 if layer.backend == "cpu" else 1)

    monkeypatch.setattr(counter.Counter, "forward", wrong)
    with pytest.raises(TallyboxError, match="features"):
        counter.check_agreement(counter.PAPER, "cpu", CPU, 5)


@pytest.mark.parametrize("component", [counter.PAPER, counter.PRESENCE], ids=["counter", "presence"])
def test_a_single_box_agrees_although_its_boxes_have_no_gradient(component):
    counter.check_agreement(component, "cpu", CPU, 1)


def test_an_own_component_is_timed():
    own = "examples.soft_nms:SoftNms"
    rows = list(counter.bench_counter(CPU, seconds=0.01, cpu_sizes=((4, 3),), component=own))
    assert [row.case for row in rows] == ["soft-nms forward 4x3", "soft-nms forward+backward 4x3"]
