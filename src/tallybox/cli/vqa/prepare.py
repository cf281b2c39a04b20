"""`tallybox vqa prepare`: turn questions, answers and features into what training reads."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from tallybox.cli.bench import format_bytes
from tallybox.cli.progress import progress_steps
from tallybox.cli.terminal import echo_line
from tallybox.vqa.data.prepare import VOCABULARY, official_files, with_explicit_files
from tallybox.vqa.data.prepare import prepare as prepare_files
from tallybox.vqa.data.vocabulary import Vocabulary

existing_file = click.Path(path_type=Path, exists=True, dir_okay=False)
existing = click.Path(path_type=Path, exists=True)


class SplitFile(click.ParamType[tuple[str, Path]]):
    """SPLIT=FILE."""

    name = "SPLIT=FILE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        """Split at the first equals sign."""
        split, separator, path = str(value).partition("=")
        if not separator or not path:
            self.fail(f"must be SPLIT=FILE, for instance train=questions.json, but got {value!r}", param, ctx)
        return split, Path(path)


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--features", type=existing_file, multiple=True, required=True, help="A TSV of bottom-up features; repeat for more."
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The prepared folder.")
@click.option("--questions", type=SplitFile(), multiple=True, help="Questions of train, val or test.")
@click.option("--annotations", type=SplitFile(), multiple=True, help="Answers of train or val.")
@click.option("--pairs", type=SplitFile(), multiple=True, help="Complementary pairs of train or val.")
@click.option(
    "--instances", type=existing_file, multiple=True, help="COCO instances with true boxes, to supervise attention."
)
@click.option("--vocabulary", type=existing, help="A prepared folder whose vocabulary to use, for a test split alone.")
@click.option("--answers", type=click.IntRange(min=1), help="How many answers a model can give.  [default: 3000]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def prepare(
    folder: Path | None,
    features: tuple[Path, ...],
    out: Path,
    questions: tuple[tuple[str, Path], ...],
    annotations: tuple[tuple[str, Path], ...],
    pairs: tuple[tuple[str, Path], ...],
    instances: tuple[Path, ...],
    vocabulary: Path | None,
    answers: int | None,
    as_json: bool,
) -> None:
    """Turn the official files in FOLDER (or named one by one) and their features into what training reads.

    The same command resumes after an interruption.
    """
    start = time.perf_counter()
    if vocabulary is not None and vocabulary.is_dir():
        vocabulary = vocabulary / VOCABULARY
    given = [
        (split, role, path)
        for role, some in (("questions", questions), ("annotations", annotations), ("pairs", pairs))
        for split, path in some
    ]
    options: dict[str, Any] = {} if answers is None else {"answers": answers}
    if vocabulary is not None:
        options["vocabulary"] = Vocabulary.load(vocabulary)
    with progress_steps() as show:
        splits = with_explicit_files({} if folder is None else official_files(folder), given)
        done = prepare_files(splits, features, out, instances=instances, on_progress=show, **options)
    seconds = round(time.perf_counter() - start, 2)
    if as_json:
        click.echo(json.dumps({**done, "seconds": seconds}))
        return
    for split, number in done["questions"].items():
        left_out = done["unanswerable"][split]
        note = f"; {left_out} have no answer in the vocabulary: scored, not trained on" if left_out else ""
        if instances:
            note += f"; the true boxes of {done['supervised'][split]} are known"
        echo_line(f"{split}: {number} questions{note}")
    echo_line(f"{done['words']} words, {done['answers']} answers")
    repeated = f"; {done['repeated_photos']} came again and were passed over" if done["repeated_photos"] else ""
    size = format_bytes(done["store_bytes"])
    echo_line(f"{done['photos']} photos with {done['proposals']} proposals, {size}{repeated}")
    echo_line(f"{out}: ready, {seconds} s")
