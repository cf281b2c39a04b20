"""A run's folder: its configuration (config.json) and results (results.jsonl), safe against interruption."""

import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from tallybox import __version__
from tallybox.errors import InputError
from tallybox.files import write_text


def open_run(folder: Path, config: dict[str, Any]) -> Path:
    """Start a run in a folder, or resume the one that was interrupted there; return the file of its results.

    A run is resumed with the configuration that it was started with, and no other.
    """
    path = folder / "config.json"
    if path.exists():
        earlier = json.loads(path.read_text())["config"]
        if changed := sorted(key for key in {*earlier, *config} if earlier.get(key) != config.get(key)):
            raise InputError(
                f"{folder} holds a run with another configuration ({', '.join(changed)} differ); "
                "name a new folder, or repeat the earlier command to go on with that run"
            )
    else:
        write_text(path, json.dumps({"config": config, "versions": versions()}, indent=1) + "\n")
    return folder / "results.jsonl"


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
    """Read a file of JSON lines, without a last one that was cut short."""
    if not path.exists():
        return []
    results = []
    for number, line in enumerate(path.read_text().split("\n")[:-1], start=1):
        try:
            results.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise InputError(f"{path}, line {number} must be a JSON object, but it is damaged: {error}") from None
    return results


def versions() -> dict[str, str]:
    """Return the versions that a run is made with."""
    return {"tallybox": __version__, "torch": torch.__version__, "python": platform.python_version()}
