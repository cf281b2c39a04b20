"""What the first page says is so."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tallybox.counter.reference import Activations

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/using.md", "docs/photos.md"])
def test_code_on_the_page_runs_and_prints_what_it_shows(page):
    results = doctest.testfile(str(ROOT / page), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0


def equations(page: str) -> list[tuple[str, str]]:
    """Return the file and the function of every row of the tables of equations in docs/method.md."""
    found = []
    for table in re.findall(r"^\| (?:paper|symbol) \|.*\n(?:\|.*\n)+", page, re.MULTILINE):
        header, _, *rows = table.splitlines()
        package = re.search(r"where \(`(\w+)/`\)", header)
        path = ""
        for row in rows:
            where = re.fullmatch(r"`(?:([\w/]+\.py): )?(\w+)`", row.split("|")[-2].strip())
            if where:
                path = where[1] or path
                found.append((f"{package[1]}/{path}" if package else path, where[2]))
    return found


def test_every_equation_has_the_function_that_the_page_names():
    named = equations((ROOT / "docs/method.md").read_text())
    assert len(named) > 15
    for path, function in named:
        assert f"def {function}(" in (ROOT / "src/tallybox" / path).read_text(), (path, function)


def test_the_page_names_the_activations_as_the_code_does():
    named = re.findall(r"f\d `(\w+)`", (ROOT / "docs/method.md").read_text())
    assert tuple(named) == Activations._fields


def test_the_table_of_speeds_is_what_the_committed_results_say():
    check = subprocess.run(
        [sys.executable, ROOT / "benchmarks/table.py", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr
