"""Counting a Parquet data set on many machines, with Ray.

Each task reads a piece of the data set and counts in it. The data set must lie where all machines see it under the same
path; the estimator travels from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tallybox.detections.container import Detections, ImageId
from tallybox.detections.parquet import ParquetPiece, SeenImages, parquet_pieces, read_parquet_piece
from tallybox.detections.readers import is_parquet
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import ImagePredictions, PredictionArrays
from tallybox.estimator.ray_tasks import RayTasks


class _Shared(NamedTuple):
    estimator: CountEstimator
    wanted: list[int] | None  # category ids


class _PieceCounts(NamedTuple):
    """What was counted in a piece up to its end, or up to a mistake in the data."""

    part: Path  # the file that the piece is from
    image_ids: list[ImageId | None]
    predictions: list[tuple[list[list[int]], PredictionArrays]]  # of some images each, with their category ids
    error: TallyboxError | None


def predict_each_with_ray(
    estimator: CountEstimator, path: Path, categories: Sequence[int | str] | None = None
) -> Iterator[tuple[Detections, ImagePredictions]]:
    """Yield what `CountEstimator.predict_each` yields for a Parquet data set, in the same order, from many machines.

    The boxes stay where they were read: the images that come back have only their ids.
    """
    if not is_parquet(path):
        raise InputError(f"on many machines detections must be .parquet, a file or a folder, but got {path}")
    wanted = None if categories is None else [estimator.category_id(category) for category in categories]
    pieces = [piece._replace(part=piece.part.absolute()) for piece in parquet_pieces(path)]
    if not pieces:
        return
    tasks = RayTasks(_count_piece, _Shared(estimator, wanted))
    seen = SeenImages()
    for counted in tasks.map_in_order(pieces):
        image_ids = iter(counted.image_ids)
        for predictions in estimator.by_image(counted.predictions):
            image_id = next(image_ids)
            seen.check(counted.part, image_id)
            yield Detections.empty(image_id), predictions
        if counted.error is not None:
            raise counted.error


def _count_piece(piece: ParquetPiece, shared: _Shared) -> _PieceCounts:
    counted = _PieceCounts(piece.part, [], [], None)
    try:
        for images, category_ids, arrays in shared.estimator.predict_batches(read_parquet_piece(piece), shared.wanted):
            counted.image_ids.extend(image.image_id for image in images)
            counted.predictions.append((category_ids, arrays))
    except TallyboxError as error:
        return counted._replace(error=error)
    return counted
