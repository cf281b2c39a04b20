"""A question of VQA v2 with the answers of ten people, and the splits of the questions."""

from typing import NamedTuple

ANSWERS_PER_QUESTION = 10  # in VQA v2
ANSWER_TYPES = ("yes/no", "number", "other")
COUNTING_WORDS = "how many"
SPLITS = ("train", "val", "test", "test-dev")
JOINED_SPLITS = {"trainval": ("train", "val")}


class QuestionRecord(NamedTuple):
    """A question with everything that scoring needs; a test split has neither answers nor answer types."""

    question_id: int
    image_id: str  # as `photo_id` writes it
    text: str
    answers: tuple[str, ...] | None
    answer_type: str | None
    question_type: str | None = None  # its first words in VQA v2; simple or complex in TallyQA

    @property
    def counts(self) -> bool:
        """Whether this is a counting question: it starts with "how many", as in the published ``eval-acc.py``."""
        return self.text.lower().startswith(COUNTING_WORDS)
