"""`tallybox vqa prepare`: turn questions, answers and features into what training reads."""

import json
import time
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal

from tallybox.cli.options import existing, json_option
from tallybox.cli.progress import progress_steps
from tallybox.cli.terminal import echo_line
from tallybox.errors import InputError
from tallybox.vqa.data.feature_files import FeatureFile, find_feature_files
from tallybox.vqa.data.prepare import SKIPPED, VOCABULARY, official_files, with_explicit_files
from tallybox.vqa.data.prepare import prepare as prepare_files
from tallybox.vqa.data.store import PHOTOS, FeatureStore
from tallybox.vqa.data.vocabulary import Vocabulary

existing_file = click.Path(path_type=Path, exists=True, dir_okay=False)

SHOWN_RECORDS = 20  # that were skipped; a file lists all


def split_file(value: str) -> tuple[str, Path]:
    """Split ``SPLIT=FILE`` at the first equals sign."""
    split, _, path = value.partition("=")
    if not path:
        raise click.BadParameter(f"must be SPLIT=FILE, for instance train=questions.json, but got {value!r}")
    return split, Path(path)


def feature_files(value: str) -> list[FeatureFile]:
    """Split ``[PREFIX=]PATH`` at the first equals sign, unless the whole is a path."""
    prefix, _, path = ("", "", value) if Path(value).exists() else value.partition("=")
    if not Path(path or prefix).exists():
        raise click.BadParameter(f"must be a file or a folder, but there is none at {path or prefix!r}")
    try:
        return find_feature_files(Path(path), prefix)
    except InputError as error:  # a ValueError, whose message click 8.2 leaves out
        raise click.BadParameter(str(error)) from None


SPLIT_FILES: dict[str, Any] = {"type": split_file, "metavar": "SPLIT=FILE", "multiple": True}


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--features",
    type=feature_files,
    metavar="[PREFIX=]PATH",
    multiple=True,
    required=True,
    help="Region features: a file (.tsv, .h5, .safetensors) or a folder of them or of .npz; repeat for more. "
    "VG=PATH for Visual Genome's numbers.",
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The prepared folder.")
@click.option("--questions", **SPLIT_FILES, help="Questions of train, val, test or test-dev.")
@click.option("--annotations", **SPLIT_FILES, help="Answers of train or val.")
@click.option("--pairs", **SPLIT_FILES, help="Complementary pairs of train or val.")
@click.option(
    "--instances", type=existing_file, multiple=True, help="COCO instances with true boxes, to supervise attention."
)
@click.option("--vocabulary", type=existing, help="A prepared folder whose vocabulary to use, for a test split alone.")
@click.option(
    "--vocabulary-from",
    type=click.Choice(["train", "trainval"]),
    help="Whose words and answers; trainval for the test server.  [default: train]",
)
@click.option("--answers", type=click.IntRange(min=1), help="How many answers a model can give.  [default: 3000]")
@click.option("--skip-broken", is_flag=True, help="Leave out what cannot be read, and list it with its questions.")
@click.option("--verify", is_flag=True, help="Compare the finished store of features with its checksums.")
@json_option
def prepare(
    folder: Path | None,
    features: tuple[list[FeatureFile], ...],
    out: Path,
    vocabulary: Path | None,
    verify: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Turn the official files in FOLDER (or named one by one) and their features into what training reads.

    The same command resumes after an interruption; with more --features it adds their photos.
    """
    start = time.perf_counter()
    if vocabulary is not None and vocabulary.is_dir():
        vocabulary = vocabulary / VOCABULARY
    named = {role: options.pop(role) for role in ("questions", "annotations", "pairs")}
    explicit = [(split, role, path) for role, files in named.items() for split, path in files]
    options = {name: value for name, value in options.items() if value is not None}
    if vocabulary is not None:
        options["vocabulary"] = Vocabulary.load(vocabulary)
    with progress_steps() as show:
        splits = with_explicit_files({} if folder is None else official_files(folder), explicit)
        done = prepare_files(splits, list(chain.from_iterable(features)), out, on_progress=show, **options)
        if verify:
            FeatureStore.open(out / PHOTOS).verify(on_progress=partial(show, "checksums"))
    seconds = round(time.perf_counter() - start, 2)
    if as_json:
        click.echo(json.dumps({**done, "seconds": seconds}))
        return
    for split, number in done["questions"].items():
        left_out = done["unanswerable"][split]
        note = f"; {left_out} have no answer in the vocabulary: scored, not trained on" if left_out else ""
        if options["instances"]:
            note += f"; the true boxes of {done['supervised'][split]} are known"
        echo_line(f"{split}: {number} questions{note}")
    for split, number in done["left_out"].items():
        echo_line(f"{split}: left out, since none of its {number} questions is about a photo in the files of features")
    echo_line(f"{done['words']} words, {done['answers']} answers")
    repeated = f"; {done['repeated_photos']} came again and were passed over" if done["repeated_photos"] else ""
    size = decimal(done["store_bytes"])
    proposals = f"{done['proposals']} proposals of {done['features']} features"
    echo_line(f"{done['photos']} photos with {proposals}, {size}{repeated}")
    _show_skipped(done, out / SKIPPED)
    echo_line(f"{out}: ready{', its checksums are right' if verify else ''}, {seconds} s")


def _show_skipped(done: dict[str, Any], listed: Path) -> None:
    broken = done["broken_records"]
    for message in broken[:SHOWN_RECORDS]:
        echo_line(f"skipped: {message}")
    if len(broken) > SHOWN_RECORDS:
        echo_line(f"skipped: {len(broken) - SHOWN_RECORDS} more records")
    for split, number in done["lost_questions"].items():
        if number:
            echo_line(f"{split}: {number} questions lost with their photos, listed in {listed}")
