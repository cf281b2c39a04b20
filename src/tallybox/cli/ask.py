"""`tallybox ask`: a VQA model's answer to a question about a photo. Experimental."""

import warnings
from pathlib import Path

import click
from rich.console import Console

from tallybox.cli import options
from tallybox.cli.terminal import echo_json, echo_line


@click.command()
@click.argument("photo", type=options.any_path)
@click.argument("question")
@click.option("--model", type=options.existing, help="A run or checkpoint of `tallybox vqa train`.")
@options.json_option
def ask(photo: Path, question: str, model: Path | None, as_json: bool) -> None:
    """Experimental: answer an English QUESTION about a PHOTO, such as "How many dogs are there?".

    The bundled model is small; for "how many" of a known category, tallybox prints its own count too, which is better.

    \b
    tallybox ask beach.jpg "How many dogs are there?"
    tallybox ask beach.jpg "Is it raining?" --json
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    with Console(stderr=True).status("Looking at the photo"):
        from tallybox.detections.categories import named
        from tallybox.estimator.prediction import interval_text
        from tallybox.photos.images import read_photo
        from tallybox.vqa.answer import Answerer, count_named

        warnings.filterwarnings("ignore", module=r"PIL\.")  # about damage in a file: it is read or reported
        answerer = Answerer(model)
        seen = answerer.look(read_photo(photo))
        answer, counts = answerer.ask(seen, question), count_named(seen, question)
    if answer.unknown_words:
        unknown = ", ".join(map(repr, answer.unknown_words))
        echo_line(f"Unknown words were ignored: {unknown}. The answer is unreliable.", err=True)
    if as_json:
        counted = {name: count.to_dict() for name, count in counts.items()}
        echo_json({**answer.to_dict(), **({"counts": counted} if counted else {})})
        return
    for text, probability in answer.answers:
        if text == answer.answer or probability >= 0.01:
            echo_line(f"{text}  {100 * probability:.0f} %")
    for name, count in counts.items():
        echo_line(f"tallybox count: {named(str(count), name)} (90 %: {interval_text(count)})")
