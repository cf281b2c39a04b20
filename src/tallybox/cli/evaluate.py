"""`tallybox evaluate`: score an estimator, compared with tuned NMS."""

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from tallybox.cli import options
from tallybox.cli.terminal import echo_json
from tallybox.estimator.estimator import CountEstimator
from tallybox.photos.detector import check_same_detector


@click.command("evaluate")
@click.argument("file", type=options.existing)
@click.argument("source", metavar="DETECTIONS|PHOTOS")
@click.argument("labels", type=options.existing)
@options.source_options
@options.detections_options
@options.json_option
def evaluate(file: Path, source: str, labels: Path, as_json: bool, **others: Any) -> None:
    """Score the estimator in FILE on labelled images, compared with NMS tuned on the images that it was fitted to.

    Images and LABELS are as for `tallybox fit`; tallybox does not score what your table leaves out.

    \b
    tallybox evaluate own.safetensors photos/ counts.csv
    tallybox evaluate own.safetensors boxes.parquet counts.xlsx
    tallybox evaluate own.safetensors boxes.json instances.json --json
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from tallybox.estimator.evaluation import evaluate as score

    estimator = CountEstimator.load(file)
    with options.reported_failures() as report:
        images, counts, detector = options.read_labelled(source, labels, file, report, **others)
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
    table = figures_table("", "exact", "MAE", "RMSE")
    rows = {"estimator": "estimator", "nms": "NMS, one threshold pair", "nms_per_category": "NMS, tuned per category"}
    for key, name in rows.items():
        scores = result[key]
        table.add_row(name, f"{100 * scores['exact']:.1f} %", f"{scores['mae']:.3f}", f"{scores['rmse']:.3f}")
    console.print(f"{result['pairs']} pairs of image and category\n")
    console.print(table)
    console.print(f"\n90 % intervals cover {100 * result['coverage90']:.1f} % of the true counts:\n")
    coverage, width = result["coverage90_by_predicted_count"], result["width90_by_predicted_count"]
    by_count = figures_table("predicted count", "covered", "mean width")
    for group in coverage:
        by_count.add_row(group.replace("-", "–"), f"{100 * coverage[group]:.1f} %", f"{width[group]:.2f}")
    console.print(by_count)
    over_nonzero = "" if result["mrmse_nz"] is None else f"; if there are any, {result['mrmse_nz']:.3f}"
    console.print(f"\nOver every category of every image: mRMSE {result['mrmse']:.3f}{over_nonzero}")
    console.print("NMS has the best thresholds for each figure, on the images that the estimator was fitted to.")


def figures_table(*headers: str) -> Table:
    """Return an empty table of names and figures, in the style of `tallybox count`."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    for number, header in enumerate(headers):
        table.add_column(header, justify="right" if number else "left")
    return table
