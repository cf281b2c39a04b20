"""The encoded questions of a prepared folder, by split: train, val, test, test-dev, or trainval for the first two.

``SPLIT.safetensors`` has the questions as numbers, ``SPLIT.jsonl`` as the official files have them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tallybox.errors import InputError
from tallybox.files import atomic_writing, import_optional, read_tensors, write_tensors
from tallybox.vqa.data.questions import ANSWERS_PER_QUESTION, JOINED_SPLITS, SPLITS, QuestionRecord
from tallybox.vqa.data.store import PHOTOS, FeatureStore
from tallybox.vqa.data.vocabulary import Vocabulary

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
    relevance: NDArray[np.int8] | None = None,
) -> None:
    """Write a split's questions, as the official files have them and encoded."""
    msgspec = import_optional("msgspec", needed_for="writing questions", install="'tallybox[vqa]'")
    with atomic_writing(folder / f"{split}.jsonl") as file:
        file.write(msgspec.json.Encoder().encode_lines(records))
    words, lengths = encode_words(vocabulary, records)
    question_ids = np.array([record.question_id for record in records], np.int64)
    arrays: dict[str, NDArray[Any]] = {"question_ids": question_ids, "words": words, "lengths": lengths, "pairs": pairs}
    if all(record.answers is not None for record in records):
        encoded = [vocabulary.encode_answers(ten_answers(record.answers or ())) for record in records]
        arrays["answers"] = np.array(encoded, np.int16)
    if relevance is not None:
        arrays["relevance"] = relevance
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    write_tensors(folder / f"{split}.safetensors", tensors, {"image_ids": [record.image_id for record in records]})


def ten_answers(answers: Sequence[str]) -> Sequence[str]:
    """Return ten answers in the proportions of any number of them: a model is trained on ten.

    >>> ten_answers(["2"]) == ["2"] * 10, ten_answers(["3", "2", "3"])
    (True, ['3', '3', '3', '3', '3', '3', '3', '2', '2', '2'])
    """
    if len(answers) == ANSWERS_PER_QUESTION:
        return answers
    grouped = sorted(answers, key=answers.index)
    return [grouped[place * len(grouped) // ANSWERS_PER_QUESTION] for place in range(ANSWERS_PER_QUESTION)]


def encode_words(
    vocabulary: Vocabulary, records: Sequence[QuestionRecord]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the words of questions as indices ``[Q, L]``, padded with 0, and their numbers of words ``[Q]``."""
    encoded = [vocabulary.encode_question(record.text) for record in records]
    words = np.zeros((len(encoded), max(map(len, encoded), default=1)), np.int64)
    for row, indices in enumerate(encoded):
        words[row, : len(indices)] = indices
    return words, np.array([len(indices) for indices in encoded], np.int64)


def open_questions(folder: Path, split: str, store: FeatureStore | None = None) -> EncodedQuestions:
    """Return a split's questions as numbers, with the rows of their photos in the folder's store.

    A question without an answer in the vocabulary has only -1 as answers; it is scored, but not trained on.
    """
    store = store or FeatureStore.open(folder / PHOTOS)
    parts = [_read(folder, part) for part in _parts(folder, split)]

    def joined(name: str, padding: int = 0, dtype: type[np.integer] = np.int64) -> Any:
        arrays = [tensors[name].numpy().astype(dtype, copy=False) for _, tensors in parts if name in tensors]
        if len(arrays) < len(parts):
            return None
        width = max(array.shape[-1] for array in arrays)
        if arrays[0].ndim == 2:
            arrays = [np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=padding) for array in arrays]
        return np.concatenate(arrays)

    images = store.rows_of([image_id for header, _ in parts for image_id in header["image_ids"]])
    numbers = {name: joined(name) for name in ("question_ids", "words", "lengths", "answers")}
    return EncodedQuestions(**numbers, images=images, relevance=joined("relevance", UNKNOWN_RELEVANCE, np.int8))


def open_records(folder: Path, split: str) -> list[QuestionRecord]:
    """Return a split's questions as the official files have them, in the order of `open_questions`."""
    msgspec = import_optional("msgspec", needed_for="reading questions", install="'tallybox[vqa]'")
    decoder = msgspec.json.Decoder(QuestionRecord)
    records: list[QuestionRecord] = []
    for part in _parts(folder, split):
        path = folder / f"{part}.jsonl"
        try:
            records.extend(decoder.decode_lines(path.read_bytes()))
        except (OSError, msgspec.DecodeError) as error:
            raise InputError(f"Cannot read {path}: {error}; repeat tallybox vqa prepare") from None
    return records


def open_pairs(folder: Path, split: str) -> NDArray[np.int64]:
    """Return a split's complementary pairs of question ids, `[K, 2]`; none if there was no file of them."""
    return np.concatenate([_read(folder, part)[1]["pairs"].numpy() for part in _parts(folder, split)])


def has_split(folder: Path, split: str) -> bool:
    """Return whether a prepared folder has a split."""
    return all((folder / f"{part}.safetensors").exists() for part in JOINED_SPLITS.get(split, (split,)))


def _parts(folder: Path, split: str) -> tuple[str, ...]:
    if not has_split(folder, split):
        present = [name for name in (*SPLITS, *JOINED_SPLITS) if has_split(folder, name)]
        raise InputError(f"{folder} has no split {split!r}, only {', '.join(present) or 'none'}; see vqa prepare")
    return JOINED_SPLITS.get(split, (split,))


def _read(folder: Path, split: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    path = folder / f"{split}.safetensors"
    try:
        return read_tensors(path)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}); repeat tallybox vqa prepare") from None
