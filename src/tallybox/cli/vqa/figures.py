"""`tallybox vqa figures`: the paper's figures from a run."""

from pathlib import Path
from typing import Any

import click

from tallybox.cli.vqa.evaluate import warn_of_learned
from tallybox.devices import device_or_default

folder = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True))
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Where to.  [default: RUN/figures]")
@click.option("--toy", type=folder, help="A folder of tallybox toy sweep, whose activations are drawn beside.")
@click.option("--photos", type=folder, help="Photos to draw under the boxes, named by their ids as COCO's are.")
@click.option("--split", default="val", show_default=True, help="Which questions.")
@click.option("--prepared", type=folder, help="Another prepared folder than the run's own.")
@click.option("--device", help='"cpu" or "cuda"; the GPU where there is one.')
def figures(run: Path, out: Path | None, device: str | None, **options: Any) -> None:
    """Draw a RUN's learning curves, accuracy by true count and, of the counter model, activations and examples."""
    from tallybox.vqa.figures import draw_run_figures

    warn_of_learned(run, options["split"], options["prepared"])
    out = out or (run if run.is_dir() else run.parent) / "figures"
    written = draw_run_figures(run, out, device=device_or_default(device), **options)
    click.echo(f"{out}: {', '.join(sorted({path.stem for path in written}))}")
