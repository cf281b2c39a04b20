"""`tallybox fit`: learn to count from a detector's boxes and true counts."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import click

from tallybox.cli.label_options import describe_labels, label_options, trust_line
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.detections.labels import LabelSummary
from tallybox.detections.readers import read_labelled
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.evaluation import held_out_metrics, held_out_right_by_width, train_metrics
from tallybox.files import check_writable

existing = click.Path(path_type=Path, exists=True)


@click.command()
@click.argument("detections", type=existing)
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
@click.option("--seed", type=int, help="[default: 0]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def fit(
    detections: Path,
    labels: Path,
    out: Path,
    photos: int | None,
    categories: tuple[str, ...],
    missing_is_zero: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Learn to count from DETECTIONS (COCO results, CSV, Parquet) and LABELS (COCO instances, or a CSV of counts).

    A category that a CSV never names is unknown: it is not learned from. So is a photo without a row, unless
    --missing-is-zero. In COCO instances, every category of the file was counted in each of its photos.
    """
    start = time.perf_counter()
    check_writable(out)  # before minutes of learning
    read, counts = read_labelled(detections, labels, only=categories, missing_is_zero=missing_is_zero)
    if photos is not None:
        counts = counts.first_images(photos)
    images = list(read)
    estimator = CountEstimator(**{name: value for name, value in options.items() if value is not None})
    with progress_bar("learning") as show:
        estimator.fit(images, counts, on_progress=show)
    _save(estimator, out)
    taken = LabelSummary.of(images, counts)
    describe_labels(taken, counts.categories)
    report = estimator.report
    assert report is not None
    seconds = round(time.perf_counter() - start, 2)
    figures = {"train": train_metrics(estimator, images, counts), "held_out": held_out_metrics(report)}
    right = held_out_right_by_width(report)
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
