"""`tallybox ask`: the answer to a question about a photo, with what else it might be."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tallybox.cli.terminal import echo_line, printable

if TYPE_CHECKING:
    from tallybox.ask.answering import PhotoAnswer

BAR = 24  # characters of a certain answer


@click.command()
@click.argument("photo", type=click.Path(path_type=Path))
@click.argument("question")
@click.option("--model", type=click.Path(path_type=Path, exists=True), help="What `tallybox vqa train` wrote.")
@click.option(
    "--explain", "page", type=click.Path(path_type=Path, dir_okay=False), help="Write a page that shows why (.html)."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ask(photo: Path, question: str, model: Path | None, page: Path | None, as_json: bool) -> None:
    """Answer an English QUESTION about a PHOTO, such as "How many dogs are there?".

    The model that comes with tallybox is small: it learned from 3,000 photos, knows about 1,000 words, and answers with
    one of 138 numbers, words or yes and no. Words that it never saw are named.
    """
    with Console(stderr=True).status("Looking at the photo"):
        from tallybox.ask import Answerer
        from tallybox.ask.question import named_words
        from tallybox.photos.images import read_photo

        warnings.filterwarnings("ignore", module=r"PIL\.")  # about damage in a file: it is read or reported
        answerer = Answerer(model)
        counter = None if page is None else answerer.counter  # a model without one is refused at once
        decoded = read_photo(photo)
        found = answerer.ask(decoded, question)
    if page is not None and counter is not None:
        from tallybox.drawing.vqa_answer import answer_page, counted_page
        from tallybox.files import write_text
        from tallybox.report.page import report_page

        if found.counted is not None and found.counted.answers and answerer.estimator is not None:
            data = counted_page(found, decoded, answerer.estimator)
        else:
            data = answer_page(found, decoded, counter)
        write_text(page, report_page(data))
        echo_line(f"{page}: how it came to that", err=True)
    if found.unknown_words:
        words = named_words(found.unknown_words, answerer.vocabulary)
        echo_line(f"It does not know: {words}. It answers from the others: take that as a guess.", err=True)
    for sentence in found.remarks:
        echo_line(sentence, err=True)
    if as_json:
        sys.stdout.write(json.dumps(found.to_dict()) + "\n")
    else:
        _print(found)


def _print(found: PhotoAnswer) -> None:
    """Print the answer, and the others that are at all probable."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="left", no_wrap=True)
    table.add_column(justify="right")
    table.add_column()
    for number, (answer, probability) in enumerate(found.answers):
        if number == 0 or probability >= 0.01:
            bar = "█" * round(BAR * probability) or "▏"
            style = "bold" if number == 0 else "dim"
            table.add_row(Text(printable(answer), style), Text(f"{100 * probability:.0f} %", style), Text(bar, style))
    Console(highlight=False).print(table)
