"""Progress on standard error: bars on a terminal, else a line a minute."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINE_SECONDS = 60.0


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
        yield _show_lines()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    # Into a file or a pipe, standard output must stay apart from the bar; on a terminal it is printed above it.
    with Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty()) as progress:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done, total=total)

        yield show


def _show_lines() -> Callable[[str, int, int], None]:
    """Return a function that prints a line a minute: the step, how much of it is done, how long the rest takes."""
    last, starts = time.monotonic(), dict[str, tuple[float, int]]()  # starts: the time and the work done, by step

    def show(step: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        since, before = starts.setdefault(step, (now, done))
        if now - last < LINE_SECONDS:
            return
        last = now
        left = f", {(now - since) * (total - done) / (done - before) / 60:.0f} min left" if done > before else ""
        click.echo(f"{step}: {done} of {total} ({100 * done / max(total, 1):.0f} %){left}", err=True)

    return show
