"""The `tallybox` command. A command parses, calls one library function, prints."""

import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from tallybox import __version__
from tallybox.cli.terminal import echo_line, printable
from tallybox.errors import TallyboxError, did_you_mean

COMMANDS = {
    "count": ("tallybox.cli.count", "Count objects in photos or files of detections."),
    "demo": ("tallybox.cli.demo", "Count in three sample photos and show how it works; needs no files."),
    "serve": ("tallybox.cli.serve", "Serve the explorer page and the HTTP service."),
    "explain": ("tallybox.cli.explain", "Write a page that explains a count."),
    "detect": ("tallybox.cli.detect", "Write a detector's boxes for photos to a file."),
    "fit": ("tallybox.cli.fit", "Fit an estimator to your detector's boxes and true counts."),
    "evaluate": ("tallybox.cli.evaluate", "Score an estimator against tuned NMS."),
    "toy": ("tallybox.cli.toy", "Train and draw the paper's toy task."),
    "vqa": ("tallybox.cli.vqa", "Train and score models on VQA v2."),
    "ask": ("tallybox.cli.ask", "Answer a question about a photo (experimental)."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is used: help stays instant.

    ``lazy_commands`` are the module, which has a function of the command's name, and one line of help, by name.
    """

    def __init__(self, *args: Any, lazy_commands: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.lazy_commands = lazy_commands

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a command if the name is unknown."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            suggestion = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(f"{error.message.rstrip('.')}{suggestion}", ctx) from None

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


class Tallybox(LazyGroup):
    """All commands; a user's mistake is one line, whichever of them finds it."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a user's mistake ends in one line and exit status 1, and a warning is one line too."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: echo_line(f"Warning: {message}", err=True)
                return super().invoke(ctx)
        except (TallyboxError, OSError, MemoryError) as error:  # what a user, a disk and a machine can do wrong
            if ctx.params["debug"] or isinstance(error, BrokenPipeError):
                raise
            raise click.ClickException(printable(_line(error))) from error
        except click.ClickException as error:  # of Click itself, with names as they were typed or found
            error.message = printable(error.message)  # type: ignore[misc]  # read-only for type checkers alone
            raise


def _line(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"Out of memory. {error}".strip()
    if isinstance(error, OSError) and not isinstance(error, TallyboxError):
        return f"Cannot open {error.filename or 'a file'}: {error.strerror or error}"
    return str(error)


@click.command(cls=Tallybox, lazy_commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tallybox")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Count objects from overlapping boxes, differentiably."""
