"""`tallybox vqa predict`: write the results file of the test server."""

from __future__ import annotations

from pathlib import Path

import click

from tallybox.cli.device import chosen_device
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.vqa.configuration import ModelName


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The results file.")
@click.option("--split", default="test", show_default=True, help="Which questions: test, test-dev, ...")
@click.option(
    "--prepared", type=click.Path(path_type=Path, exists=True), help="Another prepared folder than the run's own."
)
@click.option("--model", "name", type=click.Choice(["baseline", "counter"]), help="What a .pth file is taken for.")
@click.option("--device", help='"cpu" or "cuda"; by default the GPU, if any.')
def predict(
    run: Path, out: Path, split: str, prepared: Path | None, name: ModelName | None, device: str | None
) -> None:
    """Answer all questions of a split with a RUN (or a .pth file of the published code) for the test server."""
    from tallybox.vqa.prediction import predict_run, write_results

    with progress_bar("answering") as show:
        _, answers = predict_run(
            run, split=split, prepared=prepared, name=name, device=chosen_device(device), on_progress=show
        )
    write_results(answers, out)
    echo_line(f"{out}: {len(answers)} answers")
