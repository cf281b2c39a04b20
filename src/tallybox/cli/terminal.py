"""Text for a terminal: names from files are escaped, so that they can neither control it nor look like more lines."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import click


def printable(text: object) -> str:
    r"""Return text in which every character that does not print is written as an escape, as ``ls -b`` does.

    >>> printable("a\x1b[2Jb\nError: no disk.jpg")
    'a\\x1b[2Jb\\nError: no disk.jpg'
    >>> printable("café 猫.jpg")
    'café 猫.jpg'
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def echo_line(text: str, *, err: bool = False) -> None:
    """Print one line for people."""
    # Not click.echo, whose line lands in the middle of a progress bar.
    print(printable(text), file=sys.stderr if err else sys.stdout, flush=True)


def echo_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    click.echo(json.dumps(content, allow_nan=False))
