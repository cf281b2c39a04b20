"""`tallybox suggest`: which photos are worth labelling next, and what more labels would bring."""

import json
from pathlib import Path
from textwrap import fill
from typing import Any

import click
from rich.console import Console

from tallybox.cli.count_output import counts_table
from tallybox.cli.image_source import open_images
from tallybox.cli.options import existing, json_option, reported_failures, source_options
from tallybox.cli.terminal import echo_line
from tallybox.detections.image_ids import match_photos
from tallybox.detections.readers import read_counts
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.inference import Fitted
from tallybox.estimator.suggestion import Suggestion, doubtful_images, expected_at

TIMES = (2, 4)  # as many photos
LITTLE = 0.005  # of the counts


@click.command()
@click.argument("file", metavar="ESTIMATOR", type=existing)
@click.argument("source", metavar="DETECTIONS|PHOTOS")
@click.option("--number", type=click.IntRange(min=1), default=20, show_default=True, help="How many photos to list.")
@click.option("--labels", type=existing, help="Leave out photos that have counts here already.")
@click.option("--category", "categories", multiple=True, metavar="NAME", help="By these only; may be repeated.")
@source_options
@json_option
def suggest(
    file: Path, source: str, number: int, labels: Path | None, categories: tuple[str, ...], as_json: bool, **photos: Any
) -> None:
    """List the photos in whose counts the estimator has the most doubt, which are worth labelling next.

    PHOTOS are a folder or a pattern in quotes, DETECTIONS a file as `tallybox fit` takes it. It also says what more
    labels would bring, from the learning curve that `tallybox fit` measured on photos that were left out.
    """
    estimator = CountEstimator.load(file)
    with reported_failures() as report:
        opened = open_images(source, file, report, estimator.fitted, **photos)
        images = list(opened.images)
        if labels is not None:
            counts = read_counts(labels, opened.names or None)
            ids = [str(image.image_id) for image in images]
            file_names = {image_id: counts.file_names.get(image_id, str(image_id)) for image_id in counts.counts}
            labelled = {*counts.counts, *match_photos(file_names, ids).values()}
            images = [image for image in images if image.image_id not in labelled]
        suggestions = doubtful_images(estimator, images, number, categories or None)
        if as_json:
            click.echo(json.dumps(_as_dict(suggestions, estimator.fitted)))
            return
        _show(suggestions, len(images))
        click.echo(fill(what_labels_bring(estimator.fitted), 80))


def what_labels_bring(fitted: Fitted) -> str:
    """Return the learning curve and what it promises, in words."""
    curve, photos = fitted.learning_curve, fitted.totals.photos
    if not curve:
        return "What more labels would bring is not known: the estimator learned from few photos, or is an older one."
    fewer, now = curve
    expected = [expected_at(curve, times * photos) for times in TIMES]
    if expected[-1].exact - now.exact < LITTLE:
        more = f"{TIMES[-1]} times as many labels would change little"
    else:
        more = "with " + ", with ".join(f"{p.photos:,} about {100 * p.exact:.0f} %" for p in expected)
    return (
        f"Learned from {photos:,} photos: {100 * now.exact:.0f} % of the counts are right on photos left out "
        f"({100 * fewer.exact:.0f} % where only {fewer.photos:,} were learned from); {more}."
    )


def _as_dict(suggestions: list[Suggestion], fitted: Fitted) -> dict[str, object]:
    curve = fitted.learning_curve
    return {
        "suggestions": [
            {"image": s.image_id, "doubt": s.doubt, "category": s.category, **s.prediction.to_dict()}
            for s in suggestions
        ],
        "learning_curve": [point._asdict() for point in curve],
        "expected": [expected_at(curve, times * fitted.totals.photos)._asdict() for times in TIMES] if curve else [],
    }


def _show(suggestions: list[Suggestion], images: int) -> None:
    if not suggestions:
        echo_line(f"no image of {images:,} is left to suggest")
        return
    echo_line(f"the {len(suggestions)} of {images:,} images that are worth labelling next, the most doubtful first")
    rows = [(s.image_id, s.category, s.prediction, s.prediction) for s in suggestions]
    Console().print(counts_table(("image", "most doubtful", "count", "90 % interval"), rows))
