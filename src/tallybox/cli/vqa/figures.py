"""`tallybox vqa figures`: the paper's figures from a run."""

from pathlib import Path
from typing import Any

import click

from tallybox.cli.options import existing
from tallybox.cli.terminal import echo_line


@click.command()
@click.argument("run", type=existing)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Where to.  [default: RUN/figures]")
@click.option("--toy", type=existing, help="A folder of tallybox toy sweep, whose activations are drawn too.")
@click.option("--photos", type=existing, help="Photos to draw under the boxes, named by their ids as COCO's are.")
@click.option("--split", default="val", show_default=True, help="Which questions.")
@click.option("--prepared", type=existing, help="Another prepared folder than the run's own.")
def figures(run: Path, out: Path | None, **options: Any) -> None:
    """Draw a RUN's learning curves and, of the counter model, activations and examples."""
    from tallybox.vqa.figures import draw_run_figures

    out = out or (run if run.is_dir() else run.parent) / "figures"
    written = draw_run_figures(run, out, **options)
    echo_line(f"{out}: {', '.join(sorted({path.stem for path in written}))}")
