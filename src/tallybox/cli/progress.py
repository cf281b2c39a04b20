"""Progress on standard error, where it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress on standard error, where it is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn())
    # Into a file or a pipe, standard output must stay apart from the bar; on a terminal it is printed above it.
    redirect = sys.stdout.isatty()
    with Progress(*columns, console=console, disable=not console.is_terminal, redirect_stdout=redirect) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
