import pytest
import torch
from benchmarks.measure import report

from benchmarks import vqa
from tallybox.errors import TallyboxError

CPU = torch.device("cpu")


@pytest.fixture
def tiny():
    return vqa.Size(8, 40, vqa.DataSizes(30, 12, 16, 5), vqa.ModelConfig(embedding=4, question=8, attention=8))


def test_steps_and_parts_are_timed_beside_plain_ones(tiny):
    rows = list(vqa.bench_vqa(CPU, 0.01, [tiny]))
    cases = [row.case.split(", ") for row in rows]
    assert cases[0] == ["step", "float32", "8 x 5 x 16"]
    parts = ["gathering a batch", "question", "attention", "weighted means", "counter", "classifier", "Adam"]
    assert [case[1] for case in cases[1:]] == parts
    assert all(row.median_ms > 0 and row.reference_ms > 0 for row in rows)
    assert rows[0].questions_per_second == pytest.approx(8 / rows[0].median_ms * 1e3, rel=0.01)
    assert report(rows, CPU)["rows"][0].keys() >= {"case", "median_ms", "reference_ms", "speedup", "peak_bytes"}


def test_nothing_is_timed_that_learns_otherwise(tiny, monkeypatch):
    vqa.check_learning(tiny, CPU, vqa.StepMode("bfloat16"))
    honest = vqa.VqaTrainer.update

    def wrong_in_half_precision(trainer, labelled):
        honest(trainer, labelled)
        if trainer.dtype == torch.bfloat16:
            trainer.totals += 1

    monkeypatch.setattr(vqa.VqaTrainer, "update", wrong_in_half_precision)
    with pytest.raises(TallyboxError, match="learn"):
        vqa.check_learning(tiny, CPU, vqa.StepMode("bfloat16"))
