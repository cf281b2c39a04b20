"""Griffe extension for the API reference: doctests become code blocks, parameters are explained from one table."""

import re
import tomllib
from pathlib import Path
from typing import Any

from griffe import Class, Docstring, Extension, Function, Module, Object

DOCTEST = re.compile(r"^>>> .*(?:\n(?!\n).*)*", re.MULTILINE)  # up to the next empty line
MEANINGS = tomllib.loads((Path(__file__).parent / "reference" / "python" / "parameters.toml").read_text())


class CompleteDocstrings(Extension):
    """Fence each doctest of a docstring and add what its parameters, results and errors mean."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Add sections to all functions and classes of the package, now that classes know their parameters."""
        for module in _walk(pkg):
            for member in module.members.values():
                if isinstance(member, Function):
                    _add_sections(member, member.name)
                elif isinstance(member, Class):
                    _add_sections(member, member.name)
                    for name, method in member.members.items():
                        if isinstance(method, Function) and not name.startswith("_"):
                            _add_sections(method, f"{member.name}.{name}")


def _walk(module: Module) -> list[Module]:
    inner = [member for member in module.members.values() if isinstance(member, Module)]
    return [module, *(found for one in inner for found in _walk(one))]


def _add_sections(obj: Function | Class, key: str) -> None:
    if obj.docstring is None:
        return
    known = [(p.name, MEANINGS["parameters"].get(p.name)) for p in obj.parameters if p.name != "self"]
    text = _section("Args", [f"{name}: {meaning}" for name, meaning in known if meaning])
    if result := MEANINGS["returns"].get(key):
        text += _section("Returns", [result])
    text += _section("Raises", MEANINGS["raises"].get(key, []))
    obj.docstring = Docstring(obj.docstring.value.rstrip() + text, parent=obj, parser="google")


def _section(title: str, lines: list[str]) -> str:
    return f"\n\n{title}:\n" + "\n".join(f"    {line}" for line in lines) if lines else ""
