"""The system's Chromium and services of their own process, for tests of the pages and of the service."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ("--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@dataclass
class OpenedPage:
    """A page, with the errors on its console and the addresses that it requested."""

    page: object
    errors: list[str] = field(default_factory=list)
    requested: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """The system's Chromium, driven by Playwright: while it is there no other event loop can run in this thread."""
    if CHROMIUM is None:
        pytest.skip("needs a chromium on the PATH (Debian: apt install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *QUIET])
        yield started
        started.close()


@pytest.fixture
def open_page(browser) -> Iterator[object]:
    """Open pages; in the end none may have logged an error."""
    opened: list[OpenedPage] = []

    def open_one(url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> OpenedPage:
        page = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            has_touch=False,
            accept_downloads=True,
        )
        made = OpenedPage(page)
        page.on("console", lambda entry: made.errors.append(entry.text) if entry.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: made.errors.append(str(error)))
        page.on("request", lambda request: made.requested.append(request.url))
        page.goto(url)
        opened.append(made)
        return made

    yield open_one
    errors = [error for one in opened for error in one.errors]
    for one in opened:
        one.page.close()
    assert errors == []


@dataclass(frozen=True)
class RunningService:
    """A `tallybox serve` of its own process."""

    address: str
    process: subprocess.Popen


def start_service(*options: str, **environment: str) -> RunningService:
    """Start one on a free port, and wait until it announces its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tallybox", "serve", "--port", "0", *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    output = ""
    for line in process.stderr:
        output += line
        if "tallybox is at " in line:
            return RunningService(line.split("tallybox is at ")[1].split()[0], process)
    raise AssertionError(f"the service did not start: {output}")


def stop_service(service: RunningService) -> int:
    """Stop it as a supervisor does, and return its exit status."""
    service.process.send_signal(signal.SIGTERM)
    status = service.process.wait(60)
    service.process.stderr.close()
    return status


@pytest.fixture(scope="session")
def service() -> Iterator[RunningService]:
    """The service with the estimator and the detector that come with the package."""
    started = start_service()
    yield started
    stop_service(started)


@pytest.fixture
def show(open_page, tmp_path):
    """Write a page and open it."""

    def write_and_open(text: str, **options):
        (tmp_path / "page.html").write_text(text)
        return open_page((tmp_path / "page.html").as_uri(), **options)

    return write_and_open


@pytest.fixture
def explorer(open_page, service):
    """Open the explorer on one of its tabs, and wait for its numbers."""

    def open_explorer(hash_: str = "", *, tab: str = "play", **options):
        opened = open_page(f"{service.address}/{hash_}", **options)
        opened.page.locator(f"#tab-{tab}").click()
        if tab == "photo":
            opened.page.wait_for_selector("#photos[aria-busy=false]")
        else:
            opened.page.wait_for_selector(".count[data-value]:visible")
            settled(opened.page)
        return opened

    return open_explorer


def scene_of(page) -> dict:
    """The scene as its link says."""
    padded = "JSON.parse(atob(location.hash.slice(1).replaceAll('-', '+').replaceAll('_', '/')))"
    return page.evaluate(padded)


def settled(page) -> None:
    """Wait until the answer to the last change is drawn."""
    page.wait_for_selector("#explorer[aria-busy=false]")
