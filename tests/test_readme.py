"""What the first page says is so."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tallybox.counter.reference import Activations

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "page", ["README.md", "docs/reference/layers.md", "docs/reference/file-formats.md", "docs/learn/photos.md"]
)
def test_code_on_the_page_runs_and_prints_what_it_shows(page):
    results = doctest.testfile(str(ROOT / page), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0


def test_the_readme_is_short_and_its_links_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 125
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("https://")]
    assert len(links) > 15
    assert [link for link in links if not (ROOT / link).exists()] == []


def equations(page: str) -> list[tuple[str, str]]:
    """Return the file and the function of every row of a page's table of equations."""
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
    pages = ("docs/understand/method.md", "docs/understand/presence.md")
    named = [equation for page in pages for equation in equations((ROOT / page).read_text())]
    assert len(named) > 15
    for path, function in named:
        assert f"def {function}(" in (ROOT / "src/tallybox" / path).read_text(), (path, function)


def test_the_page_names_the_activations_as_the_code_does():
    named = re.findall(r"f\d `(\w+)`", (ROOT / "docs/understand/method.md").read_text())
    assert tuple(named) == Activations._fields


def test_the_table_of_speeds_is_what_the_committed_results_say():
    check = subprocess.run(
        [sys.executable, ROOT / "benchmarks/table.py", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr


def test_the_table_of_visual_question_answering_is_that_of_the_results():
    pages = [(ROOT / path).read_text() for path in ("README.md", "docs/results/vqa/README.md")]
    readme, results = (re.search(r"^\| Model \| people's .*\n(?:\|.*\n)+", page, re.MULTILINE) for page in pages)
    assert readme is not None
    assert results is not None
    assert readme[0] == results[0]
