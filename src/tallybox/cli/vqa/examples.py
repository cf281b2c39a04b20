"""`tallybox vqa examples`: draw how a model counts."""

import json
from pathlib import Path
from typing import Any

import click

from tallybox.cli.options import existing
from tallybox.cli.terminal import echo_line

folder = click.Path(path_type=Path, exists=True, file_okay=False)
picture = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("run", type=existing)
@click.option("--out", type=picture, help="A picture, .svg or .png; without it, JSON is printed.")
@click.option("--photos", type=folder, help="Photos to draw under the boxes, named by their ids as COCO's are.")
@click.option("--question", "question_ids", type=int, multiple=True, help="A question's id; repeat for more.")
@click.option("--number", type=click.IntRange(min=1), help="How many of the first counting questions.  [default: 8]")
@click.option("--split", help="Which questions.  [default: val]")
@click.option("--prepared", type=existing, help="Another prepared folder than the run's own.")
def examples(run: Path, out: Path | None, photos: Path | None, question_ids: tuple[int, ...], **options: Any) -> None:
    """Show what a RUN of the counter model does with questions: boxes, A, D, C, count, prediction, truth."""
    from tallybox.vqa.examples import counting_examples

    options = {name: value for name, value in options.items() if value is not None}
    described = counting_examples(run, question_ids, **options)
    if out is None:
        click.echo(json.dumps({"examples": described}))
        return
    from tallybox.figures.vqa import draw_examples, with_photos

    draw_examples(with_photos(described, photos), out)
    echo_line(f"{out}: {len(described)} questions")
