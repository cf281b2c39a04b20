"""What `tallybox vqa prepare` writes and training reads: questions as numbers, photos as a ragged store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNKNOWN_RELEVANCE = -1


@dataclass(frozen=True)
class Questions:
    """The questions of one split, ready for a model: Q questions of at most L words."""

    question_ids: NDArray[np.int64]  # [Q]
    images: NDArray[np.int64]  # [Q] the row of each question's photo in the store
    words: NDArray[np.int64]  # [Q, L] places in the vocabulary, from 1; 0 is padding, or a word it does not hold
    lengths: NDArray[np.int64]  # [Q] how many of them are the question's, at least 1
    answers: (
        NDArray[np.int64] | None
    )  # [Q, 10] places of ten people's answers, -1 outside the vocabulary; None for a test
    relevance: NDArray[np.int8] | None = (
        None  # [Q, N] 1 where a proposal shows what the question names, 0 where not, -1 not known, or padding
    )

    def __len__(self) -> int:
        return len(self.question_ids)

    def at(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Questions:
        """Return some of the questions: those where a mask ``[Q]`` is True, or at given places."""
        answers = None if self.answers is None else self.answers[rows]
        relevance = None if self.relevance is None else self.relevance[rows]
        return Questions(
            self.question_ids[rows], self.images[rows], self.words[rows], self.lengths[rows], answers, relevance
        )


@dataclass(frozen=True)
class Proposals:
    """Proposals of some photos, padded to the longest of them: B photos, N proposals, F features."""

    features: NDArray[np.float16]  # [B, N, F]
    boxes_xyxy: NDArray[np.float32]  # [B, N, 4] pixels
    mask: NDArray[np.bool_]  # [B, N] True for a real proposal
