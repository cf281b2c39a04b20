"""`tallybox fit`: learn to count from a detector's boxes and true counts."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import click

from tallybox.cli.detector_options import reported_failures
from tallybox.cli.image_source import open_images, source_options
from tallybox.cli.label_options import describe_labels, label_options, trust_line
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.detections.container import Detections
from tallybox.detections.labels import LabelSummary, TrueCounts
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.evaluation import right_by_width, train_metrics
from tallybox.files import check_writable

existing = click.Path(path_type=Path, exists=True)


@click.command()
@click.argument("source", metavar="DETECTIONS|PHOTOS")
@click.argument("labels", type=existing)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The estimator's file.")
@click.option("--component", type=click.Choice(["presence", "paper"]), help="What counts.  [default: presence]")
@click.option("--photos", type=click.IntRange(min=1), help="Learn from the first images only, by ascending id.")
@click.option(
    "--max-objects",
    type=click.IntRange(min=1),
    help="Counts up to this get a probability each.  [default: by the labels]",
)
@label_options
@source_options
@click.option("--seed", type=int, help="[default: 0]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def fit(
    source: str,
    labels: Path,
    out: Path,
    photos: int | None,
    categories: tuple[str, ...],
    missing_is_zero: bool,
    detector: str | None,
    texts: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Learn to count from boxes and LABELS (COCO instances, or a table of counts, .csv or .xlsx).

    Boxes come from DETECTIONS (COCO results, CSV, Parquet), or from a detector that looks at PHOTOS (a folder, or a
    pattern in quotes). Its detections are kept in a folder beside the estimator, FILE.detections: a command that was
    interrupted goes on where it was, and later ones detect only what is new.

    A table has the columns image_id,category,count, or a row for each photo and a column for each category. A category
    that it never names is unknown: it is not learned from. So are a photo without a row and an empty cell, unless
    --missing-is-zero. In COCO instances, every category of the file was counted in each of its photos.
    """
    start = time.perf_counter()
    check_writable(out)  # before minutes of learning
    with reported_failures() as report:
        found = open_images(source, out, report, detector=detector, texts=texts)
        read, counts = found.with_counts(labels, only=categories, missing_is_zero=missing_is_zero)
        _fit(list(read), counts, out, photos, options, as_json, start)


def _fit(
    images: list[Detections],
    counts: TrueCounts,
    out: Path,
    photos: int | None,
    options: dict[str, Any],
    as_json: bool,
    start: float,
) -> None:
    if photos is not None:
        counts = counts.first_images(photos)
    estimator = CountEstimator(**{name: value for name, value in options.items() if value is not None})
    with progress_bar("learning") as show:
        estimator.fit(images, counts, on_progress=show)
    _save(estimator, out)
    taken = LabelSummary.of(images, counts)
    describe_labels(taken, counts.categories)
    report = estimator.report
    assert report is not None
    seconds = round(time.perf_counter() - start, 2)
    held_out = report.held_out.sums(report.true_counts).compute()
    figures = {"train": train_metrics(estimator, images, counts), "held_out": held_out}
    right = right_by_width(report.held_out, report.true_counts)
    if as_json:
        click.echo(
            json.dumps(
                {"pairs": report.pairs, "seconds": seconds, **figures, "labels": asdict(taken), "right_by_width": right}
            )
        )
        return
    echo_line(f"learned from {report.pairs} pairs in {report.photos} images, {seconds} s; wrote {out}")
    for name, title in (("train", "on these"), ("held_out", "on images left out while learning")):
        echo_line(f"{title}: " + ", ".join(f"{metric} {value:.3f}" for metric, value in figures[name].items()))
    echo_line(f"{trust_line(right)} (on images left out while learning)")


def _save(estimator: CountEstimator, out: Path) -> None:
    """Write the estimator; where that fails after all, keep what was learned in the folder for temporary files."""
    try:
        estimator.save(out)
    except InputError as error:
        spare = Path(mkdtemp(prefix="tallybox-fit-")) / out.name
        estimator.save(spare)
        raise InputError(f"{error}; the estimator is kept in {spare}") from error
