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
from tallybox.vqa.data.official import official_files
from tallybox.vqa.data.prepare import SKIPPED
from tallybox.vqa.data.prepare import prepare as prepare_files
from tallybox.vqa.data.vocabulary import VOCABULARY, Vocabulary


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
    "--instances", type=existing, multiple=True, help="COCO instances with true boxes, to supervise attention."
)
@click.option("--vocabulary", type=existing, help="A prepared folder whose vocabulary to use, for a test split alone.")
@click.option(
    "--vocabulary-from",
    type=click.Choice(["train", "trainval"]),
    help="Whose words and answers; trainval for the test server.  [default: train]",
)
@click.option("--answers", type=click.IntRange(min=1), help="How many answers a model can give.  [default: 3000]")
@click.option("--skip-missing", is_flag=True, help="Leave out questions whose photos have no features, and list them.")
@json_option
def prepare(
    folder: Path, features: tuple[Path, ...], out: Path, vocabulary: Path | None, as_json: bool, **options: Any
) -> None:
    """Turn the official files in FOLDER and their features into a folder for training.

    The same command goes on after an interruption; with more --features it adds their photos.
    """
    start = time.perf_counter()
    options = {name: value for name, value in options.items() if value is not None}
    if vocabulary is not None:
        options["vocabulary"] = Vocabulary.load(vocabulary / VOCABULARY if vocabulary.is_dir() else vocabulary)
    with progress_steps() as show:
        done = prepare_files(official_files(folder), features, out, on_progress=show, **options)
    done["seconds"] = round(time.perf_counter() - start, 2)
    if as_json:
        click.echo(json.dumps(done))
    else:
        _print(done, out)


def _print(done: dict[str, Any], out: Path) -> None:
    for split, number in done["questions"].items():
        unanswerable, supervised = done["unanswerable"][split], done["supervised"][split]
        note = f"; {unanswerable} have no answer in the vocabulary: scored, not trained on" if unanswerable else ""
        note += f"; {supervised} with known relevant proposals" if supervised else ""
        echo_line(f"{split}: {number} questions{note}")
    for split, number in done["left_out"].items():
        echo_line(f"{split}: left out; no file of features has a photo of its {number} questions")
    echo_line(f"{done['words']} words, {done['answers']} answers")
    repeated = f"; {done['repeated_photos']} occur twice, the first is used" if done["repeated_photos"] else ""
    proposals = f"{done['proposals']} proposals of {done['features']} features"
    echo_line(f"{done['photos']} photos with {proposals}, {decimal(done['store_bytes'])}{repeated}")
    for split, number in done["lost_questions"].items():
        if number:
            echo_line(f"{split}: {number} questions without photos left out, listed in {out / SKIPPED}")
    echo_line(f"{out}: ready, {done['seconds']} s")
