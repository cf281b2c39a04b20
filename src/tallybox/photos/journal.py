"""A journal of counted photos beside an output: an interrupted `tallybox count --out` resumes.

It holds JSON lines: the settings of the run, then a line a photo. A photo is counted again if its size, its time or a
setting has changed.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallybox.detections.detections import Detections
from tallybox.estimator.prediction import CountPrediction, ImagePredictions
from tallybox.photos.cache import file_state, unfinished_folder
from tallybox.photos.pipeline import PhotoResult

# Of a prediction, and the probability that there is none.
FIELDS = ("count", "most_probable", "expected", "low", "high", "at_least", "saturated", "calibrated", "absent")
Count = Callable[[list[Path]], Iterator[PhotoResult]]


def resumed(
    out: Path, paths: Sequence[Path], count: Count, settings: Mapping[str, Any], names: Mapping[int, str]
) -> Iterator[PhotoResult]:
    """Yield the results of photos, in order, those of an interrupted run from the journal of ``out``.

    ``count`` counts the other photos, in order. They are added to the journal one by one, when the caller asks for the
    next. ``names`` are those of the estimator's categories. Delete the journal when the output is complete.
    """
    journal = journal_of(out)
    first = json.dumps(dict(settings), sort_keys=True)
    lines = journal.read_bytes().split(b"\n")[:-1] if journal.is_file() else []  # the last line may be cut short
    records = [json.loads(line) for line in lines[1:]] if lines[:1] == [first.encode()] else []
    by_path = {record["path"]: record for record in records}
    kept = {path: by_path[str(path)] for path in paths if by_path.get(str(path), {}).get("state") == file_state(path)}
    counted = count([path for path in paths if path not in kept])
    with journal.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in (first, *map(json.dumps, kept.values())))
        for path in paths:
            if path in kept:
                yield _result(path, kept[path], names)
                continue
            result = next(counted)
            yield result
            if result.predictions is not None:
                file.write(f"{json.dumps(_record(path, result, result.predictions))}\n")
                file.flush()


def journal_of(out: Path) -> Path:
    """Return the journal of an output."""
    return unfinished_folder(out)


def _record(path: Path, result: PhotoResult, predictions: ImagePredictions) -> dict[str, Any]:
    return {
        "path": str(path),
        "state": file_state(path),
        "size": None if result.detections is None else result.detections.image_size,
        "counts": {
            key: [*(getattr(p, name) for name in FIELDS[:-1]), float(p.probabilities[0])]
            for key, p in predictions.items()
        },
        "moments": {key: moments.tolist() for key, moments in predictions.moments.items()},
    }


def _result(path: Path, record: Mapping[str, Any], names: Mapping[int, str]) -> PhotoResult:
    by_id = {}
    for key, values in record["counts"].items():
        fields = dict(zip(FIELDS, values, strict=True))
        absent = fields.pop("absent")
        by_id[int(key)] = CountPrediction(**fields, probabilities=np.array([absent, 1 - absent]))
    moments = {int(key): np.array(values) for key, values in record["moments"].items()}
    size = record["size"] and (record["size"][0], record["size"][1])
    return PhotoResult(
        path, Detections.empty(str(path), size), predictions=ImagePredictions(by_id, names, moments=moments)
    )
