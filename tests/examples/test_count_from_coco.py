import subprocess
import sys

import pytest

from tallybox import CountEstimator
from tests.support.shared_data import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "count_from_coco"


def run(folder, *arguments):
    command = [sys.executable, EXAMPLE / "count_from_coco.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.slow
def test_the_example_runs_on_its_own_files_and_on_given_ones(tmp_path):
    result = run(tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("exactly right: ")
    assert len(result.stdout.splitlines()) == 4
    assert CountEstimator.load(tmp_path / "counter.safetensors").fitted.ensemble
    again = run(tmp_path, tmp_path / "synthetic" / "detections.json", tmp_path / "synthetic" / "counts.csv")
    assert again.stdout == result.stdout
