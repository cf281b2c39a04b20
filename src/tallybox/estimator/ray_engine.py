"""Counting a Parquet data set on many machines, with Ray.

Each task reads a piece of the data set and counts in it. The data set must lie where all machines see it under the same
path; the estimator is sent from here.
"""

from collections.abc import Iterator
from pathlib import Path

from tallybox.detections.detections import Detections, ImageId
from tallybox.detections.parquet import (
    ParquetPiece,
    SeenImages,
    parquet_pieces,
    read_parquet_categories,
    read_parquet_piece,
)
from tallybox.detections.readers import is_parquet, with_known_ids
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.estimator.prediction import ImagePredictions
from tallybox.estimator.ray_tasks import RayTasks

PieceCounts = tuple[list[tuple[ImageId | None, ImagePredictions]], TallyboxError | None]


def predict_each_with_ray(
    estimator: CountEstimator, path: Path, categories: Categories = None
) -> Iterator[tuple[Detections, ImagePredictions]]:
    """Yield what `CountEstimator.predict_each` yields for a Parquet data set, in the same order, from many machines.

    The boxes stay where they were read: the images that come back have only their ids.
    """
    if not is_parquet(path):
        raise InputError(f"on many machines detections must be .parquet, a file or a folder, but got {path}")
    pieces = [piece._replace(part=piece.part.absolute()) for piece in parquet_pieces(path)]
    if not pieces:
        return
    seen = SeenImages()
    results = RayTasks((estimator, categories)).map_in_order(_count_piece, pieces)
    for piece, (counted, error) in zip(pieces, results, strict=True):
        for image_id, predictions in counted:
            seen.check(piece.part, image_id)
            yield Detections.empty(image_id), predictions
        if error is not None:
            raise error


def _count_piece(piece: ParquetPiece, shared: tuple[CountEstimator, Categories]) -> PieceCounts:
    """Count in a piece up to its end, or up to a mistake in the data, which is returned as well."""
    estimator, categories = shared
    counted = []
    try:
        names, images = estimator.fitted.categories, read_parquet_piece(piece)
        if not read_parquet_categories(piece.part):
            images = with_known_ids(images, names, piece.part)
        for image, predictions in estimator.predict_each(images, categories):
            counted.append((image.image_id, predictions))
    except TallyboxError as error:
        return counted, error
    return counted, None
