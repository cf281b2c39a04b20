"""The questions of a prepared folder, by split: ``train``, ``val``, ``test``, or ``trainval`` for the first two."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.vqa.prepared import UNKNOWN_RELEVANCE, Questions
from tallybox.vqa.questions import Record
from tallybox.vqa.store import FeatureStore
from tallybox.vqa.vocabulary import Vocabulary

SPLITS = ("train", "val", "test")
TOGETHER = {"trainval": ("train", "val")}
RECORDS, CHECKSUMS = "records.jsonl", "checksums.json"
REPORT_EVERY = 1 << 14  # questions


def write_split(
    folder: Path,
    split: str,
    records: Sequence[Record],
    pairs: NDArray[np.int64],
    vocabulary: Vocabulary,
    store: FeatureStore,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    relevance: NDArray[np.int8] | None = None,
) -> None:
    """Write a split's questions as numbers beside their records; its folder appears when it is whole."""
    unfinished = folder / f"{split}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    encoded = []
    with (unfinished / RECORDS).open("wb") as file:
        for number, record in enumerate(records):
            encoded.append(vocabulary.encode_question(record.text))
            file.write(msgspec.json.encode(record) + b"\n")
            if number % REPORT_EVERY == 0:
                on_progress(number, len(records))
        file.flush()
        os.fsync(file.fileno())
    words = np.zeros((len(records), max(map(len, encoded), default=1)), np.int32)
    for row, places in enumerate(encoded):
        words[row, : len(places)] = places
    arrays: dict[str, NDArray[Any]] = {
        "question_ids": np.array([record.question_id for record in records], np.int64),
        "images": store.rows_of([record.image_id for record in records]),
        "words": words,
        "lengths": np.array([len(places) for places in encoded], np.int32),
        "pairs": pairs,
    }
    if all(record.answers is not None for record in records):
        answered = [vocabulary.encode_answers(record.answers or ()) for record in records]
        arrays["answers"] = np.array(answered, np.int16 if len(vocabulary.answers) < 1 << 15 else np.int32)
    if relevance is not None:
        arrays["relevance"] = relevance
    for name, array in arrays.items():
        with (unfinished / f"{name}.npy").open("wb") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())
    sums = {path.name: _sha256(path.read_bytes()) for path in sorted(unfinished.iterdir())}
    (unfinished / CHECKSUMS).write_text(json.dumps(sums, indent=1) + "\n")
    unfinished.rename(folder / split)
    on_progress(len(records), len(records))


def open_questions(folder: Path, split: str) -> Questions:
    """Return a split's questions as numbers.

    A question none of whose ten answers is in the vocabulary is there all the same, as it is scored: all its places
    are -1. There is nothing in it to learn, so training leaves it out.
    """
    parts = [_arrays(folder / part) for part in _parts(folder, split)]
    length = max(part["words"].shape[1] for part in parts)
    padded = [np.pad(part["words"], ((0, 0), (0, length - part["words"].shape[1]))) for part in parts]
    answers = [part["answers"].astype(np.int64) for part in parts if "answers" in part]
    relevance = [part["relevance"] for part in parts if "relevance" in part]
    most = max((part.shape[1] for part in relevance), default=0)
    relevance = [
        np.pad(part, ((0, 0), (0, most - part.shape[1])), constant_values=UNKNOWN_RELEVANCE) for part in relevance
    ]
    return Questions(
        np.concatenate([part["question_ids"] for part in parts]),
        np.concatenate([part["images"] for part in parts]),
        np.concatenate(padded).astype(np.int64),
        np.concatenate([part["lengths"] for part in parts]).astype(np.int64),
        np.concatenate(answers) if len(answers) == len(parts) else None,
        np.concatenate(relevance) if len(relevance) == len(parts) else None,
    )


def open_records(folder: Path, split: str) -> list[Record]:
    """Return a split's questions as the official files have them, in the order of `open_questions`."""
    records: list[Record] = []
    decoder = msgspec.json.Decoder(Record)
    for part in _parts(folder, split):
        records.extend(decoder.decode_lines(_checked(folder / part / RECORDS)))
    return records


def open_pairs(folder: Path, split: str) -> NDArray[np.int64]:
    """Return a split's complementary pairs of question ids, `[K, 2]`; none where there was no file of them."""
    pairs = [_arrays(folder / part, "pairs")["pairs"] for part in _parts(folder, split)]
    return np.concatenate(pairs).astype(np.int64)


def has_split(folder: Path, split: str) -> bool:
    """Say whether a prepared folder has a split, whole."""
    return all((folder / part / CHECKSUMS).exists() for part in TOGETHER.get(split, (split,)))


def _parts(folder: Path, split: str) -> tuple[str, ...]:
    known = [name for name in (*SPLITS, *TOGETHER) if has_split(folder, name)]
    if split not in known:
        raise InputError(
            f"split must be one that {folder} has ({', '.join(known) or 'none'}), but got {split!r}; "
            "run tallybox vqa prepare"
        )
    return TOGETHER.get(split, (split,))


def _arrays(folder: Path, *names: str) -> dict[str, NDArray[Any]]:
    paths = [folder / f"{name}.npy" for name in names] or sorted(folder.glob("*.npy"))
    for path in paths:
        _checked(path)
    return {path.stem: np.load(path) for path in paths}


def _checked(path: Path) -> bytes:
    content = path.read_bytes()
    if _sha256(content) != json.loads((path.parent / CHECKSUMS).read_text()).get(path.name):
        raise InputError(f"{path} must be as it was written, but its checksum differs; prepare it again")
    return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
