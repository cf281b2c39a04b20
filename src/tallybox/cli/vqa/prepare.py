"""`tallybox vqa prepare`: turn questions, answers and features into the folder that training reads."""

import json
import time
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal

from tallybox.cli.options import existing, json_option
from tallybox.cli.progress import progress_steps
from tallybox.cli.terminal import echo_line


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--features",
    type=existing,
    multiple=True,
    required=True,
    help="Region features: a file (.tsv, .tsv.gz, .safetensors) or a folder of them; repeat for more.",
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The prepared folder.")
@click.option(
    "--vocabulary-from",
    type=click.Choice(["train", "trainval"]),
    default="train",
    show_default=True,
    help="Whose words and answers; trainval for the test server.",
)
@click.option("--skip-missing", is_flag=True, help="Leave out questions whose photos have no features.")
@json_option
def prepare(folder: Path, features: tuple[Path, ...], out: Path, as_json: bool, **options: Any) -> None:
    """Turn the official files in FOLDER and their features into a folder for training.

    The same command goes on after an interruption; with more --features it adds their photos.
    """
    from tallybox.vqa.data.official import official_files
    from tallybox.vqa.data.prepare import prepare as prepare_files

    start = time.perf_counter()
    with progress_steps() as show:
        done = prepare_files(official_files(folder), features, out, on_progress=show, **options)
    done["seconds"] = round(time.perf_counter() - start, 2)
    if as_json:
        click.echo(json.dumps(done))
        return
    for split, number in done["questions"].items():
        unanswerable, lost = done["unanswerable"][split], done["lost_questions"][split]
        note = f"; {unanswerable} have no answer in the vocabulary: scored, not trained on" if unanswerable else ""
        note += f"; {lost} more left out, without photos" if lost else ""
        echo_line(f"{split}: {number} questions{note}")
    for split, number in done["left_out"].items():
        echo_line(f"{split}: left out; no file of features has a photo of its {number} questions")
    echo_line(f"{done['words']} words, {done['answers']} answers")
    repeated = f"; {done['repeated_photos']} occur twice, the first is used" if done["repeated_photos"] else ""
    proposals = f"{done['proposals']} proposals of {done['features']} features"
    echo_line(f"{done['photos']} photos with {proposals}, {decimal(done['store_bytes'])}{repeated}")
    echo_line(f"{out}: ready, {done['seconds']} s")
