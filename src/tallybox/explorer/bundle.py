"""Asset files, and joining JavaScript modules into one script that needs no other file.

A module here is joined by leaving its import lines and `export` words out and putting it after what it imports. That
asks two things of the modules: only named imports from ``./``, and no name declared at the top of two of them.
"""

from __future__ import annotations

import re
from importlib.resources import files

IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function |const |class )", re.MULTILINE)
TOP_NAME = re.compile(r"^(?:async )?(?:function\*?|const|let|class) ([A-Za-z_$][\w$]*)", re.MULTILINE)


def asset(name: str) -> str:
    """Return the text of a file of ``assets/``."""
    return (files("tallybox.explorer") / "assets" / name).read_text(encoding="utf-8")


def joined_modules(entry: str) -> str:
    """Return a module and all that it imports as one script, each once and after what it needs."""
    parts: dict[str, str] = {}
    _collect(entry, parts)
    script = "\n".join(parts.values())
    names = TOP_NAME.findall(script)
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"modules of {entry} declare {twice} more than once"
    assert "</script" not in script.lower()
    return script


def _collect(name: str, parts: dict[str, str]) -> None:
    if name in parts:
        return
    text = asset(name)
    for needed in IMPORT.findall(text):
        _collect(needed, parts)
    plain = EXPORT.sub("", IMPORT.sub("", text))
    assert not re.search(r"^(import|export)\b", plain, re.MULTILINE), (
        f"{name} has an import or export that cannot be joined"
    )
    parts[name] = plain
