"""`tallybox evaluate`: score an estimator, compared with tuned NMS."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tallybox.cli.options import (
    detections_options,
    existing,
    json_option,
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
@source_options
@detections_options
@json_option
def evaluate(file: Path, source: str, labels: Path, as_json: bool, **options: Any) -> None:
    """Score the estimator in FILE on labelled images, compared with NMS tuned on the images that it was fitted to.

    Images and LABELS are as for `tallybox fit`; tallybox does not score what your table leaves out.

    \b
    tallybox evaluate own.safetensors photos/ counts.csv
    tallybox evaluate own.safetensors boxes.parquet counts.xlsx
    tallybox evaluate own.safetensors boxes.json instances.json --json
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from tallybox.estimator.evaluation import evaluate as score

    estimator = CountEstimator.load(file)
    with reported_failures() as report:
        images, counts, detector = read_labelled(source, labels, file, report, **options)
        if detector:
            check_same_detector(estimator.fitted.detector, detector)
        result = score(estimator, images, counts)
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
    console.print(f"90 % intervals cover {result['coverage90']:.3f} of the true counts")
    coverage, width = result["coverage90_by_predicted_count"], result["width90_by_predicted_count"]
    by_count = Table("predicted count", "coverage", "mean width")
    for group in coverage:
        by_count.add_row(group, f"{coverage[group]:.3f}", f"{width[group]:.2f}")
    console.print(by_count)
    over_nonzero = "" if result["mrmse_nz"] is None else f"; if there are any, {result['mrmse_nz']:.3f}"
    console.print(f"Over every category of every image: mRMSE {result['mrmse']:.3f}{over_nonzero}")
    console.print("NMS has the best thresholds for each figure, on the images that the estimator was fitted to.")
