"""A run's folder: what was run (config.json) and what came of it (results.jsonl), safe against interruption."""

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
    """A folder that a run can be stopped and taken up again in.

    Results are appended a line each. A line that was being written when the run was killed is dropped;
    everything before it is kept.
    """

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.config_path = folder / "config.json"
        self.results_path = folder / "results.jsonl"
        if self.config_path.exists():
            earlier = json.loads(self.config_path.read_text())["config"]
            changed = sorted(key for key in {*earlier, *config} if earlier.get(key) != config.get(key))
            if changed:
                raise InputError(
                    f"{folder} holds a run with another configuration ({', '.join(changed)} differ); "
                    "name a new folder, or repeat the earlier command to go on with that run"
                )
        else:
            described = {"config": config, "versions": versions()}
            write_text(self.config_path, json.dumps(described, indent=1) + "\n")

    def results(self) -> list[dict[str, Any]]:
        """Return the results that are there."""
        return read_results(self.results_path)

    def append(self, results: list[dict[str, Any]]) -> None:
        """Add results; they are on disk when this returns."""
        self._drop_unfinished_line()
        with self.results_path.open("a") as file:
            file.writelines(json.dumps(result, separators=(",", ":")) + "\n" for result in results)
            file.flush()
            os.fsync(file.fileno())

    def _drop_unfinished_line(self) -> None:
        if not self.results_path.exists():
            return
        content = self.results_path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.results_path, len(whole))


def read_results(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines, leaving out a last one that was cut short."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    results = []
    for number, line in enumerate(lines, start=1):
        try:
            results.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise InputError(f"{path}, line {number} must be a JSON object, but it is damaged: {error}") from None
    return results


def versions() -> dict[str, str]:
    """Say what a run was made with."""
    return {"tallybox": __version__, "torch": torch.__version__, "python": platform.python_version()}
