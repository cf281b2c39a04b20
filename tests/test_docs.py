"""The documentation site: it builds without a warning, loads nothing from elsewhere, and its code and notebooks run."""

import json
import re
import runpy
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import click
import pytest

import tallybox
from tallybox.cli import cli
from tallybox.photos.shipped import shipped_estimator
from tallybox.service.api import ServiceSettings, build_api
from tests.support.pages import browser, open_page

__all__ = ["browser", "open_page"]  # fixtures

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted(path.relative_to(ROOT) for path in [ROOT / "docs/index.md", *(ROOT / "docs/learn").glob("*.md")])
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
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


def test_every_file_that_the_map_of_the_code_names_is_there():
    named = re.findall(r"`([\w/]+\.py)`", ARCHITECTURE)
    files = [
        f"/{path.relative_to(ROOT)}" for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*.py")
    ]
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []
    assert len(named) > 50


def test_the_picture_of_the_packages_is_that_of_the_code(tmp_path):
    drawn = tmp_path / "packages.svg"
    runpy.run_path(str(ROOT / "docs/architecture_pictures.py"))["draw_packages"](drawn)
    assert drawn.read_bytes() == (ROOT / "docs/figures/packages.svg").read_bytes()


def commands(group: click.Group, prefix: str = "") -> Iterator[str]:
    """Yield the names of all commands, with those of their groups."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def test_the_map_of_the_code_names_every_command_and_every_route():
    section = ARCHITECTURE.split("## Find it\n")[1].split("\n## ")[0]
    assert [name for name in commands(cli) if f"`{name}`" not in section] == []
    settings = ServiceSettings(shipped_estimator(), detector=None)
    described = build_api(settings).openapi()["paths"]
    routes = [f"`{method.upper()} {path}`" for path, methods in described.items() for method in methods]
    assert len(routes) > 7
    assert [route for route in routes if route not in section] == []


def test_what_the_map_of_the_code_calls_is_where_it_says():
    named = re.findall(r"`(\w+)`(?: and `(\w+)`)? in `([\w/]+\.py)`", ARCHITECTURE)
    assert len(named) > 20
    for *names, file in named:
        content = (ROOT / "src/tallybox" / file).read_text()
        for name in filter(None, names):
            assert re.search(rf"^(?:def|class) {name}\b", content, re.MULTILINE), (name, file)


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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site's folder; building it must not warn."""
    pytest.importorskip("mkdocs", reason="needs MkDocs; pip install --group docs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_its_pages_and_loads_nothing_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 35
    for page in pages:
        assert FROM_ELSEWHERE.findall(page.read_text()) == [], page
    commands = (site / "reference/commands.html").read_text()
    assert "tallybox vqa prepare" in commands
    assert "Sentinel" not in commands
    assert "attention_supervision" in (site / "reference/configuration.html").read_text()
    assert "after training" in (site / "notebooks/layer.html").read_text()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1360, False), (375, True)])
def test_every_page_fits_the_screen_and_requests_nothing_from_elsewhere(site, open_page, width, dark):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        opened = open_page(address, width=width, dark=dark)
        for page in sorted(site.rglob("*.html")):
            opened.page.goto(address + page.relative_to(site).as_posix())
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, page
            assert (
                opened.page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).length") == 0
            ), page
        server.shutdown()
    elsewhere = [url for url in opened.requested if not url.startswith((address, "data:", "blob:"))]
    assert elsewhere == []
