"""`tallybox evaluate`: score an estimator beside tuned NMS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tallybox.cli.detector_options import reported_failures
from tallybox.cli.image_source import open_images, source_options
from tallybox.cli.label_options import label_options, trust_line
from tallybox.detections.category_names import check_same_names
from tallybox.estimator.estimator import CountEstimator

existing = click.Path(path_type=Path, exists=True)


@click.command("evaluate")
@click.argument("file", type=existing)
@click.argument("source", metavar="DETECTIONS|PHOTOS")
@click.argument("labels", type=existing)
@label_options
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(
    file: Path,
    source: str,
    labels: Path,
    categories: tuple[str, ...],
    missing_is_zero: bool,
    detector: str | None,
    texts: tuple[str, ...],
    as_json: bool,
) -> None:
    """Score the estimator in FILE on labelled images, beside NMS tuned on what the estimator learned from.

    Images and labels are as `tallybox fit` takes them. A category that a table of counts never names is not scored, nor
    is a photo without a row or an empty cell, unless --missing-is-zero.
    """
    from tallybox.estimator.evaluation import evaluate as score

    estimator = CountEstimator.load(file)
    names = estimator.fitted.categories
    with reported_failures() as report:
        found = open_images(source, file, report, detector=detector, texts=texts, categories=names)
        check_same_names(names, found.names, source)
        images, counts = found.with_counts(labels, only=categories, missing_is_zero=missing_is_zero)
        result = score(estimator, images, counts).compute()
        if as_json:
            click.echo(json.dumps(result))
        else:
            show(result)


def show(result: dict[str, Any]) -> None:
    """Print figures as tables."""
    metrics = ("exact", "mae", "rmse")
    table = Table("", "exact", "MAE", "RMSE", title=f"{result['pairs']} pairs of image and category")
    rows = {"estimator": "estimator", "nms": "NMS, one threshold pair", "nms_per_category": "NMS, tuned per category"}
    for key, name in rows.items():
        table.add_row(name, *(f"{result[key][metric]:.3f}" for metric in metrics))
    console = Console()
    console.print(table)
    console.print(f"90 % intervals hold {result['coverage90']:.3f} of the true counts", highlight=False)
    coverage, width = result["coverage90_by_predicted_count"], result["width90_by_predicted_count"]
    by_count = Table("predicted count", "held", "mean width")
    for group in coverage:
        by_count.add_row(group, f"{coverage[group]:.3f}", f"{width[group]:.2f}")
    console.print(by_count)
    console.print(trust_line(result["right_by_width"]), highlight=False)
    console.print(
        f"over every category of every image: mRMSE {result['mrmse']:.3f}, "
        f"where there are any {result['mrmse_nz']:.3f}",
        highlight=False,
    )
    console.print("Each figure of NMS is that of the thresholds which are best for it on the images learned from.")
