"""What docs/learn/deploy.md tells people to copy: its files name options, extras and limits that are there."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import httpx
import pytest

from tallybox.service.limits import Limits
from tests.support.pages import start_service, stop_service

ROOT = Path(__file__).parents[2]
BLOCKS = dict(
    re.findall(r"^```(\w+)[^\n]*\n(.*?)^```", (ROOT / "docs/learn/deploy.md").read_text(), re.MULTILINE | re.DOTALL)
)


def unit() -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(BLOCKS["ini"])
    return parser


def serve_options(command: list[str]) -> list[str]:
    """The options of a command, but for where it listens."""
    assert command[1] == "serve"
    options = dict(zip(command[2::2], command[3::2], strict=True))
    assert options.pop("--port") == "8000"
    options.pop("--host", None)
    return [part for option in options.items() for part in option]


@pytest.mark.slow
def test_the_service_answers_as_the_proxy_asks():
    started = start_service(*serve_options(shlex.split(unit()["Service"]["ExecStart"])), TALLYBOX_TOKEN="secret")
    try:
        name = re.search(r"server_name (\S+);", BLOCKS["nginx"])[1]
        passed = {"host": name, "origin": f"https://{name}", "authorization": "Bearer secret"}
        assert httpx.get(f"{started.address}/v1/scenes", headers=passed).status_code == 200
        assert httpx.get(f"{started.address}/v1/scenes", headers={**passed, "host": "other.org"}).status_code == 403
        assert httpx.get(f"{started.address}/healthz", headers={"host": name}).json()["counts_photos"] is True
    finally:
        stop_service(started)


def test_the_proxy_lets_through_what_the_service_takes():
    megabytes = re.search(r"client_max_body_size (\d+)m;", BLOCKS["nginx"])[1]
    assert int(megabytes) * 2**20 == Limits().body_bytes
    assert int(re.search(r"proxy_read_timeout (\d+)s;", BLOCKS["nginx"])[1]) >= 2 * Limits().seconds
    assert "proxy_set_header Host $host;" in BLOCKS["nginx"]
    assert int(unit()["Service"]["LimitNOFILE"]) > Limits().connections
    assert int(unit()["Service"]["TimeoutStopSec"]) > 2 * Limits().seconds


def test_the_extras_are_there():
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"tallybox\[([\w,]+)\]", (ROOT / "docs/learn/deploy.md").read_text())
    assert len(named) == 2
    for extras in named:
        assert set(extras.split(",")) <= set(optional)


def test_systemd_finds_no_fault_in_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    here = BLOCKS["ini"].replace("/opt/tallybox/bin/tallybox", sys.executable)
    (tmp_path / "tallybox.service").write_text(here)
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", tmp_path / "tallybox.service"]
    analysed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert analysed.returncode == 0, analysed.stderr
    assert "tallybox.service" not in analysed.stderr
