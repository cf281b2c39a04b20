import json

from benchmarks.command import benchmark_command
from benchmarks.measure import BenchRow
from click.testing import CliRunner

from tallybox.errors import TallyboxError

ROW = BenchRow("a case", 2.0, 5.0, 2.5, 3 * 2**20, None)


def bench_nothing(device, seconds):
    """Measure nothing."""
    yield ROW


def run(bench, *arguments: str):
    return CliRunner().invoke(benchmark_command(bench), [*arguments, "--device", "cpu"])


def test_json_has_the_machine_and_a_row_for_each_case(tmp_path):
    out = tmp_path / "results" / "toy.json"
    result = run(bench_nothing, "--seconds", "0.5", "--json", "--out", str(out))
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert printed["machine"]["cores"] >= 1
    (row,) = printed["rows"]
    assert row["case"] == "a case"
    assert (row["median_ms"], row["reference_ms"], row["speedup"]) == (2.0, 5.0, 2.5)
    assert (row["peak_bytes"], row["reference_peak_bytes"]) == (3 * 2**20, None)
    assert json.loads(out.read_text()) == printed


def test_a_failed_check_is_one_line_and_status_1():
    def bench_wrong(device, seconds):
        yield ROW
        raise TallyboxError("fused and reference differ")

    result = run(bench_wrong)
    assert result.exit_code == 1
    assert "differ" in result.stderr
