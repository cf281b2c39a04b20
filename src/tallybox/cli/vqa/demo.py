"""`tallybox vqa demo`: four models on a simulated world, from files to scores."""

import json
import time
from pathlib import Path

import click

from tallybox.cli.options import json_option
from tallybox.cli.progress import progress_steps
from tallybox.cli.terminal import echo_line
from tallybox.devices import device_or_default


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="The folder of data, models and scores.",
)
@click.option("--device", help='"cpu" or "cuda"; the GPU where there is one.')
@json_option
def demo(out: Path, device: str | None, as_json: bool) -> None:
    """Write a simulated world, prepare it, train four models on it and score them; no files needed.

    The models are the paper's baseline, the baseline with NMS, the paper's counter, and presence counting.

    The same command resumes after an interruption.
    """
    from tallybox.cli.vqa.evaluate import show_scores
    from tallybox.vqa.demo import run_demo
    from tallybox.vqa.evaluation import summarise

    start = time.perf_counter()
    with progress_steps() as show:
        scores = run_demo(out, device=device_or_default(device), on_progress=show)
    seconds = round(time.perf_counter() - start, 1)
    if as_json:
        click.echo(json.dumps({**summarise(scores), "seconds": seconds}))
        return
    show_scores(scores)
    echo_line(f"{out}: files, prepared, {', '.join(scores)}; {seconds} s")
