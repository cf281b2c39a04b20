"""`tallybox vqa`: VQA v2 from the official files to answers."""

from __future__ import annotations

from importlib import import_module

import click

# Each command's room, imported when the command is used.
COMMANDS = {
    "simulate": ("tallybox.cli.vqa.simulate", "Write a made-up data set in the official formats."),
    "prepare": ("tallybox.cli.vqa.prepare", "Turn questions, answers and features into what training reads."),
    "train": ("tallybox.cli.vqa.train", "Train a model."),
    "evaluate": ("tallybox.cli.vqa.evaluate", "Score trained models by the official rule."),
    "predict": ("tallybox.cli.vqa.predict", "Write the results file of the test server."),
    "examples": ("tallybox.cli.vqa.examples", "Draw how a model counts: boxes, A, D, C, answer, truth."),
    "demo": ("tallybox.cli.vqa.demo", "All of it on a made-up world: three models, scored."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.command(cls=LazyGroup)
def vqa() -> None:
    """Answer questions about photos: VQA v2."""
