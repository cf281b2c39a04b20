"""Groups of commands that import a command's module when the command is used: help stays instant."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

LazyCommands = Mapping[str, tuple[str, str]]  # the module, which has a function of the command's name, and one line


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is used."""

    def __init__(self, *args: Any, lazy_commands: LazyCommands, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lazy_commands = lazy_commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(self.lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in self.lazy_commands:
            return None
        command: click.Command = getattr(import_module(self.lazy_commands[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.lazy_commands.items()])
