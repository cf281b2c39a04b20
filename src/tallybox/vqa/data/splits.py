"""The encoded questions of a prepared folder, by split: train, val, test, test-dev, or trainval for the first two."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import atomic_writing, error_summary, write_text
from tallybox.vqa.data.questions import ANSWERS_PER_QUESTION, QuestionRecord
from tallybox.vqa.data.store import HEADER, PHOTOS, FeatureStore, checksum
from tallybox.vqa.data.vocabulary import Vocabulary

SPLITS = ("train", "val", "test", "test-dev")
JOINED_SPLITS = {"trainval": ("train", "val")}
RECORDS, CHECKSUMS = "records.jsonl", "checksums.json"
STORE = "store"  # among the checksums: the identity of the store whose rows the questions name
UNKNOWN_RELEVANCE = -1


@dataclass(frozen=True)
class EncodedQuestions:
    """The questions of one split as numbers: Q questions of at most L words about photos of at most N proposals."""

    question_ids: NDArray[np.int64]  # [Q]
    images: NDArray[np.int64]  # [Q] the row of each question's photo in the store
    words: NDArray[np.int64]  # [Q, L] indices into the vocabulary, from 1; 0 is padding, or an unknown word
    lengths: NDArray[np.int64]  # [Q] words of each question, at least 1
    answers: NDArray[np.int64] | None  # [Q, 10] indices of ten answers, -1 outside the vocabulary; None in a test split
    # [Q, N] 1: the proposal shows what the question names, 0: not, -1: unknown
    relevance: NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.question_ids)

    def at(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> "EncodedQuestions":
        """Return the questions where a mask ``[Q]`` is True, or those at indices."""
        return replace(self, **{name: array[rows] for name, array in vars(self).items() if array is not None})


def write_split(
    folder: Path,
    split: str,
    records: Sequence[QuestionRecord],
    pairs: NDArray[np.int64],
    vocabulary: Vocabulary,
    store: FeatureStore,
    relevance: NDArray[np.int8] | None = None,
) -> None:
    """Write a split's encoded questions and records; a complete folder replaces an earlier one."""
    unfinished = folder / f"{split}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    with atomic_writing(unfinished / RECORDS) as file:
        file.write(msgspec.json.Encoder().encode_lines(records))
    words, lengths = encode_words(vocabulary, records)
    arrays: dict[str, NDArray[Any]] = {
        "question_ids": np.array([record.question_id for record in records], np.int64),
        "images": store.rows_of([record.image_id for record in records]),
        "words": words,
        "lengths": lengths,
        "pairs": pairs,
    }
    if all(record.answers is not None for record in records):
        encoded = [vocabulary.encode_answers(ten_answers(record.answers or ())) for record in records]
        arrays["answers"] = np.array(encoded, np.int16 if len(vocabulary.answers) < 1 << 15 else np.int32)
    if relevance is not None:
        arrays["relevance"] = relevance
    for name, array in arrays.items():
        with atomic_writing(unfinished / f"{name}.npy") as file:
            np.save(file, array)
    sums = {path.name: checksum(path.read_bytes()) for path in sorted(unfinished.iterdir())} | {STORE: store.identity}
    write_text(unfinished / CHECKSUMS, json.dumps(sums, indent=1) + "\n")
    shutil.rmtree(folder / split, ignore_errors=True)
    unfinished.rename(folder / split)


def ten_answers(answers: Sequence[str]) -> Sequence[str]:
    """Return ten answers in the proportions of any number of them: training learns from ten.

    >>> ten_answers(["2"]) == ["2"] * 10, ten_answers(["3", "2", "3"])
    (True, ['3', '3', '3', '3', '3', '3', '3', '2', '2', '2'])
    """
    if len(answers) == ANSWERS_PER_QUESTION:
        return answers
    grouped = sorted(answers, key=answers.index)
    return [grouped[place * len(grouped) // ANSWERS_PER_QUESTION] for place in range(ANSWERS_PER_QUESTION)]


def encode_words(
    vocabulary: Vocabulary, records: Sequence[QuestionRecord]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the words of questions as indices ``[Q, L]``, padded with 0, and their numbers of words ``[Q]``."""
    encoded = [vocabulary.encode_question(record.text) for record in records]
    words = np.zeros((len(encoded), max(map(len, encoded), default=1)), np.int32)
    for row, indices in enumerate(encoded):
        words[row, : len(indices)] = indices
    return words, np.array([len(indices) for indices in encoded], np.int32)


def open_questions(folder: Path, split: str) -> EncodedQuestions:
    """Return a split's questions as numbers.

    A question none of whose ten answers is in the vocabulary has only -1 as answers; it is scored, but training leaves
    it out. Questions that were written for another store than the folder has now are an error.
    """
    _check_store(folder, split)
    parts = [_arrays(folder / part) for part in _parts(folder, split)]

    def joined(name: str, padding: int = 0, dtype: type[np.integer] = np.int64) -> Any:
        if not all(name in part for part in parts):
            return None
        arrays = [part[name].astype(dtype, copy=False) for part in parts]
        width = max(array.shape[-1] for array in arrays)
        if arrays[0].ndim == 2:
            arrays = [np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=padding) for array in arrays]
        return np.concatenate(arrays)

    numbers = {name: joined(name) for name in ("question_ids", "images", "words", "lengths", "answers")}
    return EncodedQuestions(**numbers, relevance=joined("relevance", UNKNOWN_RELEVANCE, np.int8))


def open_records(folder: Path, split: str) -> list[QuestionRecord]:
    """Return a split's questions as the official files have them, in the order of `open_questions`."""
    records: list[QuestionRecord] = []
    decoder = msgspec.json.Decoder(QuestionRecord)
    for part in _parts(folder, split):
        try:
            records.extend(decoder.decode_lines(_checked(folder / part / RECORDS)))
        except msgspec.ValidationError:  # ids of photos were numbers in tallybox 0.1
            raise InputError(
                f"{folder} must be prepared by this version of tallybox, but is not; prepare it again"
            ) from None
    return records


def open_pairs(folder: Path, split: str) -> NDArray[np.int64]:
    """Return a split's complementary pairs of question ids, `[K, 2]`; none where there was no file of them."""
    pairs = [_arrays(folder / part, "pairs")["pairs"] for part in _parts(folder, split)]
    return np.concatenate(pairs).astype(np.int64)


def has_split(folder: Path, split: str) -> bool:
    """Return whether a prepared folder has a complete split."""
    return all((folder / part / CHECKSUMS).exists() for part in JOINED_SPLITS.get(split, (split,)))


def content_checksums(folder: Path, split: str) -> dict[str, str]:
    """Return the checksums of a split's files by name; they stay when photos are added to the store."""
    return {name: checksum for name, checksum in _checksums(folder / split).items() if name != STORE}


def is_written(folder: Path, split: str, questions: int, store: FeatureStore) -> bool:
    """Return whether a folder has a complete split of that many questions about the photos of this store."""
    if not has_split(folder, split) or _checksums(folder / split).get(STORE) != store.identity:
        return False
    return len(_arrays(folder / split, "question_ids")["question_ids"]) == questions


def _check_store(folder: Path, split: str) -> None:
    """Raise where a split's row numbers are not those of the folder's store: each question would get another photo."""
    if not (folder / PHOTOS / HEADER).exists():
        return  # opening the store reports it
    identity = FeatureStore.open(folder / PHOTOS).identity
    for part in _parts(folder, split):
        if _checksums(folder / part).get(STORE, identity) != identity:  # older folders do not have it
            raise InputError(
                f"{folder / part} must be about the photos in {folder / PHOTOS}, but was written for another store; "
                "repeat tallybox vqa prepare"
            )


def _parts(folder: Path, split: str) -> tuple[str, ...]:
    complete = [name for name in (*SPLITS, *JOINED_SPLITS) if has_split(folder, name)]
    if split not in complete:
        # TallyQA has no val; its test questions have answers.
        remedy = "use --split test" if split == "val" and "test" in complete else "run tallybox vqa prepare"
        raise InputError(
            f"split must be one that {folder} has ({', '.join(complete) or 'none'}), but got {split!r}; {remedy}"
        )
    return JOINED_SPLITS.get(split, (split,))


def _arrays(folder: Path, *names: str) -> dict[str, NDArray[Any]]:
    listed = (folder / name for name in sorted(_checksums(folder)) if name.endswith(".npy"))
    paths = [folder / f"{name}.npy" for name in names] or list(listed)
    return {path.stem: np.load(BytesIO(_checked(path))) for path in paths}


def _checked(path: Path) -> bytes:
    content = path.read_bytes() if path.exists() else b""
    if checksum(content) != _checksums(path.parent).get(path.name):
        found = "its checksum differs" if path.exists() else "there is none"
        raise InputError(f"{path} must be as it was written, but {found}; {_remedy(path.parent)}")
    return content


def _checksums(folder: Path) -> dict[str, str]:
    path = folder / CHECKSUMS
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"{path} must be as it was written, but it cannot be read ({error_summary(error)}); {_remedy(folder)}"
        ) from None


def _remedy(folder: Path) -> str:
    return f"delete {folder} and repeat tallybox vqa prepare"
