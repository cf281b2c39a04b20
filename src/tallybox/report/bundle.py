"""Joining JavaScript modules into one script that needs no other file.

A module is joined by leaving out its import lines and `export` words and putting it after what it imports. So modules
may only have named imports from ``./``, and no two of them may declare the same name at the top level.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?function |const |class )", re.MULTILINE)
TOP_LEVEL_NAME = re.compile(r"^(?:async )?(?:function\*?|const|let|class) ([A-Za-z_$][\w$]*)", re.MULTILINE)


def joined_modules(entry: str, modules: Mapping[str, str]) -> str:
    """Return a module and all that it imports as one script, each once and after what it needs."""
    parts: dict[str, str] = {}
    _collect(entry, modules, parts)
    script = "\n".join(parts.values())
    names = TOP_LEVEL_NAME.findall(script)
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"modules of {entry} declare {twice} more than once"
    assert "</script" not in script.lower()
    return script


def _collect(name: str, modules: Mapping[str, str], parts: dict[str, str]) -> None:
    if name in parts:
        return
    text = modules[name]
    for needed in IMPORT.findall(text):
        _collect(needed, modules, parts)
    plain = EXPORT.sub("", IMPORT.sub("", text))
    assert not re.search(r"^(import|export)\b", plain, re.MULTILINE), f"{name} has an import or export that stays"
    parts[name] = plain
