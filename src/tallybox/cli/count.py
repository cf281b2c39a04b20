"""`tallybox count`: count the objects in files of detections, image by image."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import click

from tallybox.cli.standard_output import reserved_standard_output
from tallybox.detections.compressed import plain_suffix
from tallybox.detections.container import Detections
from tallybox.detections.files import is_parquet, read_detections
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import CountPrediction

Counted = Iterator[tuple[Detections, dict[int, CountPrediction]]]


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Count these only; may be repeated.")
@click.option("--estimator", "file", type=click.Path(path_type=Path), help="What `tallybox fit` wrote.")
@click.option(
    "--engine", type=click.Choice(["local", "ray"]), help="Where: here, or on a Ray cluster.  [default: local]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def count(
    paths: tuple[Path, ...], categories: tuple[str, ...], file: Path | None, engine: str | None, as_json: bool
) -> None:
    """Count the objects in files of detections (.json, .json.gz, .csv, .csv.gz, .parquet).

    Without --category, every category with a box that scores more than 0.05 is listed; the others count 0.
    With --engine ray, Parquet data sets are counted on the cluster that RAY_ADDRESS names, else on all cores here.
    """
    for path in paths:
        _check_kind(path)
    if file is None:
        raise TallyboxError(
            "counting from detections needs an estimator that knows the detector; learn one with "
            "'tallybox fit DETECTIONS LABELS --out FILE', then give it with --estimator FILE"
        )
    estimator = CountEstimator.load(file)
    ids = [estimator.category_id(name) for name in categories] or None
    if engine == "ray":
        from tallybox.estimator.ray_engine import predict_each_with_ray

        counted: Counted = chain.from_iterable(predict_each_with_ray(estimator, path, ids) for path in paths)
    else:
        counted = estimator.predict_each(_images(paths), ids)
    with reserved_standard_output():
        if as_json:
            _write_json(estimator, counted)
        else:
            _write_lines(estimator, counted)


def _check_kind(path: Path) -> None:
    if not is_parquet(path) and plain_suffix(path) not in (".json", ".csv"):
        raise InputError(
            f"{path} must be a file of detections (.json, .json.gz, .csv, .csv.gz or .parquet); "
            "this version does not read photos"
        )


def _images(paths: tuple[Path, ...]) -> Iterator[Detections]:
    for path in paths:
        yield from read_detections(path)


def _write_json(estimator: CountEstimator, counted: Counted) -> None:
    """Write one object, an image at a time, so that any number of images fits."""
    sys.stdout.write('{"images": [')
    separator = "\n"
    for image, predictions in counted:
        said: dict[str, Any] = {estimator.category_name(key): p.to_dict() for key, p in predictions.items()}
        sys.stdout.write(separator + json.dumps({"image": image.image_id, "counts": said}))
        separator = ",\n"
    sys.stdout.write("\n]}\n")


def _write_lines(estimator: CountEstimator, counted: Counted) -> None:
    for image, predictions in counted:
        said = [
            f"{p.said} {estimator.category_name(key)} ({p.low} to {p.high})"
            for key, p in predictions.items()
            if p.count > 0 or p.high > 0
        ]
        sys.stdout.write(f"{image.image_id}: {', '.join(said) or 'nothing'}\n")
