"""Progress on standard error: bars on a terminal, which disappear in the end; nothing elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of one step."""
    with progress_steps() as show:
        yield lambda done, total: show(title, done, total)


@contextmanager
def progress_steps() -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of several steps by name, a bar each."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step, done, total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    # Into a file or a pipe, standard output must stay apart from the bar; on a terminal it is printed above it.
    with Progress(*columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()) as progress:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done, total=total)

        yield show
