"""`tallybox fit`: fit an estimator to a detector's boxes and true counts."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from tallybox.cli import options
from tallybox.cli.evaluate import figures_table
from tallybox.cli.terminal import echo_json, echo_line, progress_bar
from tallybox.detections.categories import COCO_CATEGORIES, listed_names
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.evaluation import train_metrics
from tallybox.files import check_writable


@click.command()
@click.argument("source", metavar="DETECTIONS|PHOTOS")
@click.argument("labels", type=options.existing)
@click.option("--out", type=options.file_to_write, required=True, help="The estimator's file.")
@options.source_options
@options.detections_options
@options.json_option
def fit(source: str, labels: Path, out: Path, as_json: bool, **others: Any) -> None:
    """Fit an estimator to a detector's boxes and your true counts, LABELS: a table, or COCO instances.

    Give the boxes as a file of DETECTIONS, or a folder of PHOTOS for tallybox to detect. A table has a row for each
    photo and a column for each category, or the columns image_id, category and count; empty cells are unknown.

    \b
    tallybox fit photos/ counts.csv --out own.safetensors
    tallybox fit boxes.parquet counts.xlsx --out own.safetensors
    tallybox fit boxes.json instances.json --out own.safetensors
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from tallybox.photos.sources import find_sources

    start = time.perf_counter()
    inputs = [found.path for found in find_sources([source])]
    check_writable(out, [*inputs, labels])
    with options.reported_failures() as report_failure:
        images, counts, detector = options.read_labelled(source, labels, out, report_failure, **others)
        with progress_bar("fitting") as show:
            estimator = CountEstimator().fit(images, counts, detector=detector, on_progress=show)
        estimator.save(out)
        labelled = listed_names(counts.labelled_ids(), counts.categories or COCO_CATEGORIES)
        echo_line(f"{len(counts):,} labelled images; categories: {labelled}", err=True)
        seconds = round(time.perf_counter() - start, 2)
        figures = estimator.fitted.cross_validation
        pairs = figures["pairs"]
        if as_json:
            train = train_metrics(estimator, images, counts)
            echo_json({"pairs": pairs, "seconds": seconds, "train": train, "cross_validation": figures})
            return
        echo_line(f"Fitted to {pairs} pairs of image and category in {figures['images']} images, {seconds} s.")
        _show_cross_validation(figures)
        echo_line(f"Wrote {out}")


def _show_cross_validation(figures: Mapping[str, Any]) -> None:
    """Print how well the estimator, tuned NMS and the trained ensemble count in images that they were not fitted to."""
    answers = list(figures["estimator"]["coverage90_by_predicted_count"])
    table = figures_table("", "exact", "MAE", "covered", *(f"of {answer.replace('-', '–')}" for answer in answers))
    for name, title in {"estimator": "estimator", "nms": "tuned NMS", "ensemble": "ensemble"}.items():
        scores = figures[name]
        by_answer = scores["coverage90_by_predicted_count"]
        shares = [scores["exact"], scores["coverage90"], *(by_answer.get(answer) for answer in answers)]
        exact, *covered = ("" if share is None else f"{100 * share:.1f} %" for share in shares)
        table.add_row(title, exact, f"{scores['mae']:.3f}", *covered)
    console = Console(highlight=False)
    console.print("\nCross-validated:\n")
    console.print(table)
    console.print(f"\nThe estimator mixes {100 * figures['nms_share']:.0f} % tuned NMS with the trained ensemble.")
    console.print("Covered: true counts inside their 90 % intervals, of all and by the answer.")
