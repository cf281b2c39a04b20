from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tallybox.bench.measure import Row
from tallybox.cli import cli

ROW = Row("a case", 2.0, 5.0, 2.5, 3 * 2**20, None)


def run(*arguments: str):
    return CliRunner().invoke(cli, ["bench", *arguments])


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """A benchmark that is over at once; return what it was called with."""
    calls = []

    def bench_toy(device, seconds):
        calls.append((device.type, seconds))
        yield ROW

    monkeypatch.setattr("tallybox.bench.toy.bench_toy", bench_toy)
    return calls


def test_json_has_the_machine_and_a_row_for_each_case(tmp_path, measured):
    out = tmp_path / "results" / "toy.json"
    result = run("toy", "--device", "cpu", "--seconds", "0.5", "--json", "--out", str(out))
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["machine"]["cores"] >= 1
    assert printed["rows"] == [
        {
            "case": "a case",
            "median_ms": 2.0,
            "reference_ms": 5.0,
            "speedup": 2.5,
            "peak_bytes": 3 * 2**20,
            "reference_peak_bytes": None,
        }
    ]
    assert json.loads(out.read_text()) == printed
    assert "a case: 2.000 ms, 2.5 times the reference's speed" in result.stderr
    assert measured == [("cpu", 0.5)]


def test_without_json_a_table_is_printed():
    result = run("toy", "--device", "cpu")
    for text in ("a case", "2.000", "5.00", "2.5", "3.1 MB", "unknown"):
        assert text in result.stdout


@pytest.mark.parametrize("name", ["counter", "detections", "photos", "toy", "vqa"])
def test_every_benchmark_has_the_shared_options(name):
    result = run(name, "--help")
    assert result.exit_code == 0
    for option in ("--device", "--seconds", "--json", "--out"):
        assert option in result.stdout


def test_what_runs_on_the_cpu_refuses_another_device():
    result = run("detections", "--device", "cuda")
    assert result.exit_code == 1
    assert "this is measured on the CPU, but got device 'cuda'" in result.stderr


def test_a_device_that_torch_does_not_know_is_one_line():
    result = run("toy", "--device", "gpu")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == ['Error: device must be "cpu", "cuda" or another of torch\'s, but got \'gpu\'']
