"""`tallybox evaluate`: score an estimator beside tuned NMS."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tallybox.cli.options import (
    detections_options,
    existing,
    json_option,
    label_options,
    read_labelled,
    reported_failures,
    source_options,
)
from tallybox.cli.terminal import echo_json
from tallybox.estimator.estimator import CountEstimator
from tallybox.photos.specs import check_same_detector


@click.command("evaluate")
@click.argument("file", type=existing)
@click.argument("source", metavar="DETECTIONS|PHOTOS")
@click.argument("labels", type=existing)
@label_options
@source_options
@detections_options
@json_option
def evaluate(file: Path, source: str, labels: Path, as_json: bool, **options: Any) -> None:
    """Score the estimator in FILE on labelled images, beside NMS tuned on what the estimator learned from.

    Images and labels are as `tallybox fit` takes them. A category that a table of counts never names is not scored, nor
    is a photo without a row or an empty cell, unless --missing-is-zero.
    """
    from tallybox.estimator.evaluation import evaluate as score

    estimator = CountEstimator.load(file)
    with reported_failures() as report:
        images, counts, detector = read_labelled(source, labels, file, report, **options)
        if detector:
            check_same_detector(estimator.fitted.detector, detector)
        result = score(estimator, images, counts).compute()
        if as_json:
            echo_json(result)
        else:
            show(result)


def show(result: dict[str, Any]) -> None:
    """Print the scores as tables."""
    console = Console(highlight=False)
    table = Table("", "exact", "MAE", "RMSE", title=f"{result['pairs']} pairs of image and category")
    rows = {"estimator": "estimator", "nms": "NMS, one threshold pair", "nms_per_category": "NMS, tuned per category"}
    for key, name in rows.items():
        table.add_row(name, *(f"{result[key][metric]:.3f}" for metric in ("exact", "mae", "rmse")))
    console.print(table)
    console.print(f"90 % intervals hold {result['coverage90']:.3f} of the true counts")
    coverage, width = result["coverage90_by_predicted_count"], result["width90_by_predicted_count"]
    by_count = Table("predicted count", "held", "mean width")
    for group in coverage:
        by_count.add_row(group, f"{coverage[group]:.3f}", f"{width[group]:.2f}")
    console.print(by_count)
    console.print(trust_lines(result["right_by_width"]))
    over_nonzero = f"where there are any {result['mrmse_nz']:.3f}"
    console.print(f"over every category of every image: mRMSE {result['mrmse']:.3f}, {over_nonzero}")
    console.print("Thresholds of NMS: those best for each figure, on the images learned from.")


def trust_lines(right_by_width: Mapping[str, float], where: str = "") -> str:
    """Return how often a count is right by the width of its interval, in two lines of 80 columns for people."""
    looks = {"0": "one number", "1-2": "1 or 2 wide", "3-4": "3 or 4 wide", "5+": "wider"}
    shares = ", ".join(f"{looks[width]} {100 * share:.0f} %" for width, share in right_by_width.items())
    return f"how often the count is right{where}, by its interval:\n  {shares}"
