"""The tables of docs/reference/configuration.md are those of the code that reads the keys."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from tallybox.vqa.config import ModelConfig, TrainingConfig

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "configuration.md"
KEY = re.compile(r"^    (?P<name>\w+): (?P<type>[^=]+) = (?P<default>.+?)(?:  # (?P<comment>.+))?$", re.MULTILINE)


def keys_of(config: type[Any]) -> str:
    """Return a table of the fields of a dataclass: name, default and the comment beside it."""
    lines = ["| key | default | |", "|---|---|---|"]
    for key in KEY.finditer(inspect.getsource(config)):
        default = key["default"].strip('"').replace("True", "true")  # as TOML writes it
        default = "the same as `dropout`" if default == "None" else f"`{default}`"
        lines.append(f"| `{key['name']}` | {default} | {key['comment'] or ''} |")
    return "\n".join(lines)


@pytest.mark.parametrize("config", [ModelConfig, TrainingConfig])
def test_the_page_has_all_keys_with_their_defaults(config):
    assert f"\n{keys_of(config)}\n" in PAGE.read_text()
