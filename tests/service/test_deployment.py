"""The files that docs/learn/deploy.md tells people to copy suit the limits of the service."""

import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from tallybox.service.limits import Limits

ROOT = Path(__file__).parents[2]
BLOCKS = dict(
    re.findall(r"^```(\w+)[^\n]*\n(.*?)^```", (ROOT / "docs/learn/deploy.md").read_text(), re.MULTILINE | re.DOTALL)
)


def unit() -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(BLOCKS["ini"])
    return parser


def test_the_proxy_lets_through_what_the_service_takes():
    megabytes = re.search(r"client_max_body_size (\d+)m;", BLOCKS["nginx"])[1]
    assert int(megabytes) * 2**20 == Limits().body_bytes
    assert int(re.search(r"proxy_read_timeout (\d+)s;", BLOCKS["nginx"])[1]) >= 2 * Limits().seconds
    assert "proxy_set_header Host $host;" in BLOCKS["nginx"]
    assert int(unit()["Service"]["LimitNOFILE"]) > Limits().connections
    assert int(unit()["Service"]["TimeoutStopSec"]) > 2 * Limits().seconds


def test_systemd_finds_no_fault_in_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    here = BLOCKS["ini"].replace("/opt/tallybox/bin/tallybox", sys.executable)
    (tmp_path / "tallybox.service").write_text(here)
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", tmp_path / "tallybox.service"]
    analysed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert analysed.returncode == 0, analysed.stderr
    assert "tallybox.service" not in analysed.stderr
