"""The documentation: its code runs, every public name is documented, links work, and the site loads nothing remote."""

import doctest
import inspect
import re
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import fields, is_dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import tallybox
from tallybox.vqa.config import ModelConfig, TrainingConfig
from tests.support.pages import browser, open_page
from tests.support.torch_warnings import TORCH_WARNS_ABOUT_ITSELF

__all__ = ["browser", "open_page"]  # fixtures

pytestmark = TORCH_WARNS_ABOUT_ITSELF  # a page exports to ONNX

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(ROOT) for path in (ROOT / "README.md", *DOCS.rglob("*.md")))
PYTHON_BLOCK = re.compile(r"^ *```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
REMOTE = re.compile(r"""<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="(?:https?:)?//[^"]*""")


def python_blocks(page: Path) -> list[str]:
    return [textwrap.dedent(code) for code in PYTHON_BLOCK.findall((ROOT / page).read_text())]


@pytest.mark.parametrize("page", [*filter(python_blocks, PAGES)], ids=str)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for code in python_blocks(page):  # a block may use the names of those before it
        exec(compile(code, str(page), "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if ">>> " in (ROOT / page).read_text()], ids=str)
def test_code_prints_what_the_page_shows(page):
    results = doctest.testfile(str(ROOT / page), module_relative=False)
    assert results.attempted > 0
    assert results.failed == 0


def test_the_api_reference_has_every_public_name():
    pages = [path.read_text() for path in (DOCS / "reference").rglob("*.md")]
    documented = {name for page in pages for name in re.findall(r"^::: tallybox\.(\S+)$", page, re.MULTILINE)}
    assert documented >= {*tallybox.__all__} - {"compat"} | {"compat.Counter"}


def test_the_api_reference_explains_every_parameter():
    known = tomllib.loads((DOCS / "reference" / "python" / "parameters.toml").read_text())["parameters"]
    public = {name: getattr(tallybox, name) for name in tallybox.__all__ if name != "compat"}
    callables = [value for value in public.values() if inspect.isfunction(value)]
    for value in filter(inspect.isclass, public.values()):
        if not is_dataclass(value) and not issubclass(value, Exception) and not issubclass(value, tuple):
            callables.append(value)  # the fields of a dataclass are in its own docstring
            callables += [method for name, method in inspect.getmembers(value) if _is_own(name, method)]
    parameters = {name for value in callables for name in inspect.signature(value).parameters}
    assert parameters - {"self", "cls"} - known.keys() == set()


def _is_own(name: str, method: object) -> bool:
    is_method = inspect.isfunction(method) or inspect.ismethod(method)
    return is_method and not name.startswith("_") and method.__module__.startswith("tallybox.")


@pytest.mark.parametrize("config", [ModelConfig, TrainingConfig])
def test_every_configuration_key_is_documented(config):
    page = (DOCS / "reference" / "vqa-training.md").read_text()
    assert [field.name for field in fields(config) if f"`{field.name}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_and_pictures_of_a_page_exist(page):
    text = re.sub(r"```.*?```|`[^`]*`", "", (ROOT / page).read_text(), flags=re.DOTALL)
    targets = re.findall(r"""(?:\]\(|src=\"|srcset=\")([^)\s"#]+)""", text)
    local = [target for target in targets if not target.startswith(("https://", "http://"))]
    assert [target for target in local if not (ROOT / page).parent.joinpath(target).exists()] == []


def test_every_picture_is_on_a_page():
    text = "".join((ROOT / page).read_text() for page in PAGES)
    pictures = [path for path in DOCS.rglob("*") if path.suffix in (".svg", ".png", ".webp")]
    assert [path for path in pictures if path.name not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_source_files_that_a_page_names_exist(page):
    named = re.findall(r"(?:src/tallybox|tests|benchmarks|examples|research)/[\w/.-]*\w", (ROOT / page).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_tables_of_speeds_are_those_of_the_committed_results():
    command = [sys.executable, "-m", "benchmarks.table", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stderr


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
def test_the_site_builds_without_warnings_and_loads_nothing_remote(site):
    for page in site.rglob("*.html"):
        assert REMOTE.findall(page.read_text()) == [], page
    assert "Usage: tallybox vqa prepare" in (site / "reference" / "commands" / "vqa.html").read_text()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1360, False), (375, True)])
def test_every_page_fits_the_screen_and_requests_nothing_remote(site, open_page, width, dark):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        opened = open_page(address, width=width, dark=dark)
        for page in sorted(site.rglob("*.html")):
            opened.page.goto(address + page.relative_to(site).as_posix())
            opened.page.add_style_tag(content="math { font-size: 1.5em }")  # another machine has a wider font
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, page
            broken = opened.page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).length")
            assert broken == 0, page
        server.shutdown()
    assert [url for url in opened.requested if not url.startswith((address, "data:", "blob:"))] == []
