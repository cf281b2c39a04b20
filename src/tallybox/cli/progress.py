"""Progress on standard error, where it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


def _progress() -> Progress:
    """Return a display of steps, a line each."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    # Into a file or a pipe, standard output must stay apart from the bar; on a terminal it is printed above it.
    return Progress(*columns, console=console, disable=not console.is_terminal, redirect_stdout=sys.stdout.isatty())


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error, where it is a terminal."""
    with _progress() as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def progress_steps() -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of several steps by name, a line each, likewise."""
    with _progress() as progress:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done, total=total)

        yield show
