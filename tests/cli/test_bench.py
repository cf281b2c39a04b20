import json
from dataclasses import replace

import pytest
from benchmarks.measure import BenchRow
from click.testing import CliRunner

from tallybox.cli import cli

ROW = BenchRow("a case", 2.0, 5.0, 2.5, 3 * 2**20, None)
TABLE_NUMBERS = ("2.000", "5.00", "2.5", "3.1", "MB", "unknown")


def run(*arguments: str):
    return CliRunner().invoke(cli, ["bench", *arguments])


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """A benchmark that is over at once; return what it was called with."""
    calls = []

    def bench_toy(device, seconds):
        calls.append((device.type, seconds))
        yield ROW

    monkeypatch.setattr("benchmarks.toy.bench_toy", bench_toy)
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
    assert [line.split() for line in result.stderr.splitlines()[1:]] == [["a", "case"], [*TABLE_NUMBERS]]
    assert measured == [("cpu", 0.5)]


@pytest.mark.parametrize("case", ["a case", "part, gathering a batch, bfloat16, compiled, 256 x 100 x 2048"])
def test_without_json_a_table_of_at_most_80_columns_is_printed(case, monkeypatch):
    monkeypatch.setattr("benchmarks.toy.bench_toy", lambda device, seconds: iter([replace(ROW, case=case)]))
    result = run("toy", "--device", "cpu")
    heading, case_line, numbers = result.stdout.splitlines()
    assert heading.split() == ["ms", "reference", "ms", "speed-up", "peak", "memory", "reference's", "peak"]
    assert case_line == case
    assert tuple(numbers.split()) == TABLE_NUMBERS
    assert len(numbers) == len(heading)  # the columns are aligned
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert result.stderr == ""


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
