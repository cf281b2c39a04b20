"""What the first page says is so."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/using.md", "docs/photos.md"])
def test_code_on_the_page_runs_and_prints_what_it_shows(page):
    results = doctest.testfile(str(ROOT / page), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0


def test_the_table_of_speeds_is_what_the_committed_results_say():
    check = subprocess.run(
        [sys.executable, ROOT / "benchmarks/table.py", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr
