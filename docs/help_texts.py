"""MkDocs hook: `<!-- help: COMMAND -->` on a page becomes the help of that command and of its subcommands."""

import re
from collections.abc import Iterator
from typing import Any

import click

from tallybox.cli import cli

PLACE = re.compile(r"^<!-- help: (\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in the help texts of one page."""
    return PLACE.sub(lambda found: "\n\n".join(_help_texts(found[1])), markdown)


def _help_texts(name: str) -> Iterator[str]:
    root = click.Context(cli, info_name="tallybox", max_content_width=76)
    _, command, _ = cli.resolve_command(root, [name])
    assert command is not None, name
    context = click.Context(command, root, name, max_content_width=76, terminal_width=76)
    yield f"```{{ .text .console }}\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for subname in command.list_commands(context):
            subcommand = command.get_command(context, subname)
            assert subcommand is not None, subname
            inner = click.Context(subcommand, context, subname, max_content_width=76, terminal_width=76)
            title = f"### `tallybox {name} {subname}`"
            yield f"{title}\n\n```{{ .text .console }}\n{subcommand.get_help(inner)}\n```"
