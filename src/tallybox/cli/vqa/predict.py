"""`tallybox vqa predict`: write the results file of the test server."""

from pathlib import Path
from typing import Any

import click

from tallybox.cli.options import existing
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.devices import device_or_default


@click.command()
@click.argument("run", type=existing)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The results file.")
@click.option("--split", default="test", show_default=True, help="Which questions: test, test-dev, ...")
@click.option("--prepared", type=existing, help="Another prepared folder than the run's own.")
@click.option("--model", "name", help="The run's own component, as package.module:Class.")
@click.option("--device", help='"cpu" or "cuda"; by default the GPU, if any.')
def predict(run: Path, out: Path, device: str | None, **options: Any) -> None:
    """Answer all questions of a split with a RUN (or a .pth file of the published code) for the test server."""
    from tallybox.vqa.prediction import predict_run, write_results

    with progress_bar("answering") as show:
        _, answers = predict_run(run, device=device_or_default(device), on_progress=show, **options)
    write_results(answers, out)
    echo_line(f"{out}: {len(answers)} answers")
