"""A run's folder: its configuration (config.json) and results (results.jsonl), safe against interruption."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from tallybox import __version__
from tallybox.errors import InputError
from tallybox.files import write_text


class RunFolder:
    """A folder in which an interrupted run can be resumed.

    Each result is appended as one line. A line that was cut short when the run was killed is dropped; the lines before
    it are kept.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.config_path = folder / "config.json"
        self.results_path = folder / "results.jsonl"
        if self.config_path.exists():
            earlier = json.loads(self.config_path.read_text())["config"]
            if changed := sorted(key for key in {*earlier, *config} if earlier.get(key) != config.get(key)):
                raise InputError(
                    f"{folder} holds a run with another configuration ({', '.join(changed)} differ); "
                    "name a new folder, or repeat the earlier command to go on with that run"
                )
        else:
            write_text(self.config_path, json.dumps({"config": config, "versions": versions()}, indent=1) + "\n")

    def results(self) -> list[dict[str, Any]]:
        """Return the results so far."""
        return read_results(self.results_path)

    def append(self, results: list[dict[str, Any]]) -> None:
        """Add results; they are on disk when this returns."""
        append_results(self.results_path, results)


def append_results(path: Path, results: list[dict[str, Any]]) -> None:
    """Add JSON lines to a file; they are on disk when this returns."""
    lines = "".join(json.dumps(result, separators=(",", ":")) + "\n" for result in results)
    with path.open("a+b") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)  # drops a line that was cut short
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
