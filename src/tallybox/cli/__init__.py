"""The `tallybox` command. A command parses, calls one library function, prints."""

import warnings
from importlib import import_module
from typing import Any

import click

from tallybox import __version__
from tallybox.cli.terminal import echo_line, printable
from tallybox.errors import TallyboxError

COMMANDS = {
    "count": "Count objects in photos or files of detections.",
    "demo": "Count in three sample photos and show how it works; needs no files.",
    "serve": "Serve the explorer page and the HTTP service.",
    "explain": "Write a page that explains a count.",
    "detect": "Write a detector's boxes for photos to a file.",
    "fit": "Fit an estimator to your detector's boxes and true counts.",
    "evaluate": "Score an estimator against tuned NMS.",
    "toy": "Train and draw the paper's toy task.",
    "vqa": "Train and score models on VQA v2.",
    "ask": "Answer a question about a photo (experimental).",
}


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(self.commands)


class Tallybox(OrderedGroup):
    """All commands. Help lists them without importing them; a user's mistake is one line, whichever finds it."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the command that is named: it has the name of its module."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and getattr(import_module(f"tallybox.cli.{name}"), str(name)), rest

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


@click.group(
    cls=Tallybox,
    commands=[click.Command(name, short_help=summary) for name, summary in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="tallybox")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Count objects from overlapping boxes, differentiably."""
