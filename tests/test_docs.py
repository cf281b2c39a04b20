"""The documentation site: it builds without a warning, loads nothing from elsewhere, and its code and notebooks run."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tallybox

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted(path.relative_to(ROOT) for path in [ROOT / "docs/index.md", *(ROOT / "docs/learn").glob("*.md")])
PYTHON_BLOCK = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
FROM_ELSEWHERE = re.compile(r"""<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//[^"]*""")


def python_blocks(page: str) -> list[str]:
    return [textwrap.dedent(code) for code in PYTHON_BLOCK.findall(page)]


@pytest.mark.parametrize("page", TUTORIALS, ids=str)
def test_the_code_of_a_tutorial_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code in python_blocks((ROOT / page).read_text()):
        exec(compile(code, str(page), "exec"), {"__name__": "tutorial"})


def test_tutorials_have_code():
    assert sum(len(python_blocks((ROOT / page).read_text())) for page in TUTORIALS) > 5


def test_the_api_reference_has_every_public_name():
    listed = re.findall(r"^::: tallybox\.(\S+)$", (ROOT / "docs/reference/api.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({*tallybox.__all__} - {"compat"} | {"compat.Counter"})


NOTEBOOKS = sorted(path.relative_to(ROOT) for path in (ROOT / "docs/notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=str)
def test_a_notebook_runs(notebook):
    runpy.run_path(str(ROOT / "docs/notebooks.py"))["run"](ROOT / notebook)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=str)
def test_a_notebook_was_run_in_order_and_stores_no_error(notebook):
    cells = [cell for cell in json.loads((ROOT / notebook).read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert all(output["output_type"] in ("stream", "execute_result") for output in outputs)


def test_there_are_three_notebooks_and_the_site_lists_them():
    listed = re.findall(r"notebooks/(\S+)\.md", (ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == sorted(path.stem for path in NOTEBOOKS)
    assert len(listed) == 3


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="needs MkDocs; pip install --group docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path / "site"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assert FROM_ELSEWHERE.findall(page.read_text()) == [], page
    commands = (tmp_path / "site/reference/commands.html").read_text()
    assert "tallybox vqa prepare" in commands
    assert "Sentinel" not in commands
    assert "attention_supervision" in (tmp_path / "site/reference/configuration.html").read_text()
    assert "after training" in (tmp_path / "site/notebooks/layer.html").read_text()
