"""A run's folder: its configuration (config.json) and results (results.jsonl), safe against interruption."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tallybox import __version__
from tallybox.errors import InputError
from tallybox.files import open_text, write_text

CONFIG = "config.json"


def open_run(folder: Path, config: dict[str, Any]) -> Path:
    """Start a run in a folder, or resume the one that was interrupted there; return the file of its results.

    A run is resumed with the configuration that it was started with, and no other.
    """
    if earlier := read_config(folder):
        check_unchanged(folder, earlier, config)
    else:
        write_text(folder / CONFIG, json.dumps({"config": config, "versions": versions()}, indent=1) + "\n")
    return folder / "results.jsonl"


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a run's folder; empty if there is no run."""
    path = folder / CONFIG
    if not path.exists():
        return {}
    try:
        return {**json.loads(path.read_text())["config"]}
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} is not the configuration of a run; name another folder") from None


def check_unchanged(folder: Path, earlier: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Raise if the configuration of a folder's run differs from another."""
    if changed := list_differences(earlier, config):
        raise InputError(f"{folder} has a run with another configuration: {'; '.join(changed)}; name a new folder")


def list_differences(earlier: Mapping[str, Any], later: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the differences between two configurations, such as ``training.batch 256, not 128``."""
    differences = []
    for key in sorted({*earlier, *later}):
        one, other = earlier.get(key), later.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            differences += list_differences(one, other, f"{prefix}{key}.")
        elif one != other:
            shown = ("none" if value is None else value for value in (one, other))
            differences.append(f"{prefix}{key} {', not '.join(map(str, shown))}")
    return differences


def append_results(path: Path, results: list[dict[str, Any]]) -> None:
    """Add a JSON line for each result; they are on disk when this returns."""
    lines = "".join(json.dumps(result, separators=(",", ":")) + "\n" for result in results)
    with path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)  # drops a line that was cut short when a run was killed
        file.write(lines.encode())
        file.flush()
        os.fsync(file.fileno())


def read_results(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines, or its compressed copy (``.gz``), without a last line that was cut short."""
    if not path.exists():
        path = path.with_name(f"{path.name}.gz")
    if not path.exists() or path.stat().st_size == 0:
        return []
    with open_text(path) as file:
        lines = file.read().split("\n")[:-1]
    try:
        return [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: a line is not JSON: {error.doc[:80]!r}") from None


def versions() -> dict[str, str]:
    """Return the versions that a run is made with."""
    return {"tallybox": __version__, "torch": torch.__version__, "python": platform.python_version()}
