"""Lines and progress on a terminal. Names from files are escaped: they can neither control it nor look like lines."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


def printable(text: object) -> str:
    r"""Return text in which every character that does not print is written as an escape, as ``ls -b`` does.

    >>> printable("a\x1b[2Jb\nError: no disk.jpg")
    'a\\x1b[2Jb\\nError: no disk.jpg'
    >>> printable("café 猫.jpg")
    'café 猫.jpg'
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(text))


def echo_line(text: str, *, err: bool = False) -> None:
    """Print one line for people."""
    # Not click.echo, whose line lands in the middle of a progress bar.
    print(printable(text), file=sys.stderr if err else sys.stdout, flush=True)


def echo_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object."""
    print(json.dumps(content, allow_nan=False))


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of one step on standard error: a bar on a terminal, which disappears in the end."""
    with progress_steps() as show:
        yield lambda done, total: show(title, done, total)


@contextmanager
def progress_steps() -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of several steps by name, a bar each."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step, done, total: None
        return
    percentage = TextColumn("{task.percentage:>3.0f} %")
    columns = (TextColumn("{task.description}"), BarColumn(), percentage, TimeRemainingColumn())
    # Into a file or a pipe, standard output must stay apart from the bar; on a terminal it is printed above it.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as progress:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done, total=total)

        yield show
