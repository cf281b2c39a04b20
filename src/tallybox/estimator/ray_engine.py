"""Counting a Parquet data set on many machines, with Ray Data.

Each task reads a piece of the data set and answers it; what comes back is put in order here. A task whose machine is
lost is done again on another, and gives the same again: nothing is lost, nothing comes twice. So tasks, not actors,
which Ray can only bring back where there is room for another. The data set must lie where all machines see it under the
same path, and tallybox must be installed on each; the estimator travels from here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tallybox.detections.container import Detections, ImageId
from tallybox.detections.files import is_parquet
from tallybox.detections.parquet import ParquetPiece, SeenImages, parquet_pieces, read_parquet_piece
from tallybox.errors import InputError, TallyboxError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import ImagePredictions, PredictionArrays

# A row is an image, with as many values in each list as categories were asked; or what went wrong.
ANSWERS = {
    "counts": pa.int64(),
    "most_probable": pa.int64(),
    "expected": pa.float64(),
    "lows": pa.int64(),
    "highs": pa.int64(),
    "at_least": pa.int64(),
    "probabilities": pa.float64(),  # as many a category as there are counts
}
SCHEMA = pa.schema(
    [
        ("part", pa.string()),  # the file that the image is from
        ("number", pa.int64()),  # the image's id, where it is a number
        ("text", pa.string()),  # and where it is a text
        ("error", pa.string()),
        ("category_ids", pa.large_list(pa.int64())),
        *((name, pa.large_list(kind)) for name, kind in ANSWERS.items()),
    ]
)


def predict_each_with_ray(
    estimator: CountEstimator, path: Path, categories: Sequence[int | str] | None = None
) -> Iterator[tuple[Detections, ImagePredictions]]:
    """Yield what `CountEstimator.predict_each` yields for a Parquet data set, in the same order, from many machines.

    The boxes stay where they were read: the images that come back have only their ids. Runs on the cluster that Ray is
    connected to or that RAY_ADDRESS names, else on all cores of this machine.
    """
    if not is_parquet(path):
        raise InputError(f"on many machines detections must be .parquet, a file or a folder, but got {path}")
    ray = _connected()
    pieces = [{"part": str(p.part), "first": p.first_group, "stop": p.stop_group} for p in parquet_pieces(path)]
    if not pieces:
        return
    context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    wanted = None if categories is None else [estimator.category_id(category) for category in categories]
    with ray.data.DataContext.current(context):
        answered = ray.data.from_items(pieces, override_num_blocks=len(pieces)).map_batches(
            _answer_piece,
            fn_kwargs={"estimator": ray.put(estimator), "wanted": wanted},
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=1,
        )
    seen = SeenImages()
    for table in answered.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1):
        yield from _unpacked(table, seen, estimator.fitted.categories)


def _answer_piece(row: pa.Table, estimator: Any, wanted: list[int] | None) -> Iterator[pa.Table]:
    """Answer one piece, some images at a time; a mistake in the data is an answer too: Ray must not try again."""
    ((part, first, stop),) = zip(*(row.column(name).to_pylist() for name in ("part", "first", "stop")), strict=True)
    images = read_parquet_piece(ParquetPiece(Path(part), first, stop))
    try:
        for batch, asked, answered in _received(estimator).predict_batches(images, wanted):
            yield _packed(part, [image.image_id for image in batch], asked, answered)
    except TallyboxError as error:
        columns = {"part": [part], "error": [str(error)]}
        yield pa.table({name: columns.get(name, [None]) for name in SCHEMA.names}, SCHEMA)


@lru_cache(maxsize=1)
def _received(reference: Any) -> CountEstimator:
    """Fetch the estimator once for all tasks of a process."""
    import ray

    estimator: CountEstimator = ray.get(reference)
    return estimator


def _packed(part: str, image_ids: list[ImageId | None], asked: list[list[int]], answered: PredictionArrays) -> pa.Table:
    offsets = np.concatenate(([0], np.cumsum([len(ids) for ids in asked])))
    counts = answered.probabilities.shape[1]
    columns: dict[str, Any] = {
        "part": [part] * len(image_ids),
        "number": [image_id if isinstance(image_id, int) else None for image_id in image_ids],
        "text": [image_id if isinstance(image_id, str) else None for image_id in image_ids],
        "error": [None] * len(image_ids),
        "category_ids": pa.LargeListArray.from_arrays(offsets, pa.array([*chain(*asked)], pa.int64())),
    }
    for name, kind in ANSWERS.items():
        steps = counts if name == "probabilities" else 1
        values = pa.array(getattr(answered, name).reshape(-1), kind)
        columns[name] = pa.LargeListArray.from_arrays(offsets * steps, values)
    return pa.table(columns, SCHEMA)


def _unpacked(
    table: pa.Table, seen: SeenImages, names: Mapping[int, str]
) -> Iterator[tuple[Detections, ImagePredictions]]:
    if not table.num_rows:
        return
    rows = table.select(["part", "number", "text", "error", "category_ids"]).to_pydict()
    wrong = next((row for row, error in enumerate(rows["error"]) if error is not None), table.num_rows)
    good = table.slice(0, wrong).combine_chunks()
    arrays = {name: _values(good, name) for name in ANSWERS}
    questions = len(arrays["counts"])
    if questions:
        arrays["probabilities"] = arrays["probabilities"].reshape(questions, -1)
    answers = PredictionArrays(**arrays).by_image(rows["category_ids"][:wrong], names)
    for row, predictions in enumerate(answers):
        number = rows["number"][row]
        image_id = rows["text"][row] if number is None else number
        seen.check(Path(rows["part"][row]), image_id)
        yield Detections.empty(image_id), predictions
    if wrong < table.num_rows:
        raise InputError(rows["error"][wrong])


def _values(table: pa.Table, name: str) -> Any:
    if not table.num_rows:
        return np.zeros(0)
    return table.column(name).chunk(0).flatten().to_numpy(zero_copy_only=False)


def _connected() -> Any:
    """Return Ray, connected to a cluster; nothing is reported anywhere."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        import ray.data
    except ModuleNotFoundError:
        raise TallyboxError(
            "counting on many machines needs the package ray, which is not installed; pip install 'tallybox[ray]'"
        ) from None
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it reports every run otherwise
    return ray
