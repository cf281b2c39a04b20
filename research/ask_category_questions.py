"""How well `tallybox ask` answers questions that a count answers, beside the model alone.

    python research/ask_category_questions.py PREPARED ../shared/data/coco-count                  # validation photos
    python research/ask_category_questions.py PREPARED ../shared/data/coco-count --held-out RUN   # to choose by

With ``--held-out`` a fifth of the training photos is scored, which the log-odds that there are any are fitted to. The
model is that of `research/vqa_evidence.py photos PREPARED RUN --on held-out --models presence --seeds 0`; an estimator
is fitted to the other four fifths (three minutes on a core).
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from calibration import calibration_error
from numpy.typing import NDArray
from tallybox.ask.category_questions import (
    CERTAINTY,
    CategoryQuestion,
    answer_from_counts,
    read_category_question,
    sum_distribution,
)
from vqa_evidence import FOLDS
from written_questions import WRITTEN_FROM

from tallybox import CountEstimator, read_counts, read_detections
from tallybox.estimator.fitted import predict_arrays
from tallybox.estimator.inputs import IndexedPairs
from tallybox.estimator.prediction import CountPrediction
from tallybox.photos.shipped import shipped_estimator
from tallybox.vqa.answer import SHIPPED_MODEL
from tallybox.vqa.batches import load_examples
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import EncodedQuestions, encode_words, open_records
from tallybox.vqa.data.store import PHOTOS, FeatureStore
from tallybox.vqa.data.vocabulary import Vocabulary
from tallybox.vqa.scoring import all_scores

FIGURES = ("yes/no", "other", "all", "count", "count_mae")
AGREEING = 3  # people, for an answer to be right
Answers = list[tuple[str, float]]  # with its probability, for each question


class Asker:
    """A model of the photos of a store."""

    def __init__(self, path: Path, prepared: Path) -> None:
        self.model, self.checkpoint = load_model(path)
        self.temperature = load_model(SHIPPED_MODEL)[1].temperature
        self.store = FeatureStore.open(prepared / PHOTOS)
        self.vocabulary = Vocabulary(self.checkpoint.words, self.checkpoint.answers)

    def probabilities(self, records: list[QuestionRecord]) -> NDArray[np.float32]:
        """Return the probabilities of all answers, ``[Q, A]``."""
        words, lengths = encode_words(self.vocabulary, records)
        ids = np.arange(len(records))
        questions = EncodedQuestions(
            ids, self.store.rows_of([record.image_id for record in records]), words, lengths, None
        )
        length = self.checkpoint.config.model.feature_length
        examples = load_examples(questions, self.store, torch.device("cpu"), torch.float32, length)
        with torch.inference_mode():
            logits = torch.cat(
                [self.model(one.batch)[0] for one in examples.batches(np.array_split(ids, -(-len(ids) // 512)))]
            )
        return (logits / self.temperature).softmax(-1).numpy()

    def scores(self, image_id: str) -> NDArray[np.float16]:
        """Return the scores of a photo's regions, ``[R, 80]``."""
        (row,) = self.store.rows_of([image_id])
        return self.store.features[self.store.offsets[row] : self.store.offsets[row + 1]]


@dataclass(frozen=True)
class Asked:
    """A question with what the model alone answers, and what is counted."""

    record: QuestionRecord
    by_model: tuple[str, float]
    question: CategoryQuestion | None
    predictions: list[CountPrediction]
    best_score: float

    def answer(self) -> tuple[str, float]:
        """Return the answer with its probability."""
        counted = answer_from_counts(self.question, self.predictions, self.best_score).answers if self.question else ()
        return counted[0] if counted else self.by_model


def main() -> None:
    """Print the scores of the model alone and of `ask`; of held-out photos, also the fitted log-odds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("data", type=Path, help="detections_picodet_*.json.gz and instances_train.json.gz")
    parser.add_argument("--held-out", type=Path, help="what research/vqa_evidence.py --on held-out wrote")
    parser.add_argument("--estimator", type=Path, help="fitted to the four fifths before; else it is fitted now")
    given = parser.parse_args()
    split = "val" if given.held_out is None else "train"
    asker = Asker(given.held_out or SHIPPED_MODEL, given.prepared)
    records = open_records(given.prepared, split)
    estimator = shipped_estimator()
    if given.held_out is not None:
        held = {one for row, one in enumerate(asker.store.image_ids.tolist()) if row % FOLDS == FOLDS - 1}
        records = [record for record in records if record.image_id in held]
        estimator = CountEstimator.load(given.estimator) if given.estimator else fitted_without(held, given.data)
    asked = ask_all(records, asker, estimator, given.data / f"detections_picodet_{split}.json.gz")
    show("model alone", asked, [one.by_model for one in asked])
    show("ask", asked, [one.answer() for one in asked])
    if given.held_out is not None:
        print("fitted:", " ".join(f"{value:.2f}" for value in fitted_log_odds(asked)))


def fitted_without(held: set[str], data: Path) -> CountEstimator:
    """Fit an estimator to the training photos that are not held out."""
    photos = read_detections(data / "detections_picodet_train.json.gz")
    others = (one for one in photos if str(one.image_id) not in held)
    return CountEstimator().fit(others, read_counts(data / "instances_train.json.gz"))


def ask_all(records: list[QuestionRecord], asker: Asker, estimator: CountEstimator, detections: Path) -> list[Asked]:
    """Ask everything."""
    questions = [read_category_question(record.text) for record in records]
    counted = count_all(records, questions, estimator, detections)
    shares = asker.probabilities(records)
    answers = asker.vocabulary.answers
    asked = []
    for record, question, share in zip(records, questions, shares, strict=True):
        named = sorted(question.category_ids) if question else ()
        by_model = (answers[share.argmax()], float(share.max()))
        predictions = [counted[record.image_id, category_id] for category_id in named]
        best_score = question.best_score(asker.scores(record.image_id)) if question else 0
        asked.append(Asked(record, by_model, question, predictions, best_score))
    return asked


def count_all(
    records: list[QuestionRecord],
    questions: list[CategoryQuestion | None],
    estimator: CountEstimator,
    detections: Path,
) -> Mapping[tuple[str, int], CountPrediction]:
    """Return what is predicted of every category that a question names, by photo and category."""
    named = zip(records, questions, strict=True)
    pairs = sorted({(record.image_id, one) for record, question in named if question for one in question.category_ids})
    images = {str(one.image_id): one for one in read_detections(detections)}
    order = sorted({image for image, _ in pairs})
    where = {image: index for index, image in enumerate(order)}
    indexed = IndexedPairs(
        np.array([where[image] for image, _ in pairs]), np.array([category_id for _, category_id in pairs])
    )
    arrays = predict_arrays(estimator.fitted, [images[image] for image in order], indexed, prior="every")
    return dict(zip(pairs, arrays.each(), strict=True))


def fitted_log_odds(asked: list[Asked]) -> NDArray[np.float64]:
    """Return `ASKED_LOG_ODDS`, `PER_COUNTED` and `PER_SCORE`: a logistic regression on whether there are any.

    The questions of people and templates weigh as much as the written ones, of which there are more.
    """
    rows = []
    for one in asked:
        if one.question is not None and one.question.kind in ("how many", "whether") and one.record.answers:
            usual = sum_distribution([prediction.probabilities for prediction in one.predictions])
            is_written = one.record.question_id >= WRITTEN_FROM
            rows.append((1 - usual[0], one.best_score, one.record.answers[0] not in ("0", "no"), is_written))
    probabilities, (there, written) = np.clip(np.array(rows)[:, :2], *CERTAINTY), np.array(rows)[:, 2:].T
    inputs = np.column_stack([np.ones(len(rows)), np.log(probabilities / (1 - probabilities))])
    shares = np.where(written, 1 / written.sum(), 1 / (1 - written).sum())
    weights = np.zeros(3)
    for _ in range(20):  # Newton's method
        fitted = 1 / (1 + np.exp(-inputs @ weights))
        curvature = (inputs.T * shares * fitted * (1 - fitted)) @ inputs
        weights += np.linalg.solve(curvature, inputs.T @ (shares * (there - fitted)))
    return weights


def show(name: str, asked: list[Asked], answers: Answers) -> None:
    """Print the scores and the calibration error of all questions, of people and templates, and of the written ones."""
    records = [one.record for one in asked]
    said = [answer for answer, _ in answers]
    right = np.array([(one.answers or ()).count(answer) >= AGREEING for one, answer in zip(records, said, strict=True)])
    probable = np.array([probability for _, probability in answers])
    written = np.array([one.question_id >= WRITTEN_FROM for one in records])
    for part, chosen in (("all", written >= 0), ("people and templates", ~written), ("written", written)):
        some = [records[row] for row in np.flatnonzero(chosen)]
        answered = {records[row].question_id: said[row] for row in np.flatnonzero(chosen)}
        scores = all_scores(answered, some, np.zeros((0, 2), np.int64))
        error = calibration_error(torch.from_numpy(probable[chosen]), torch.from_numpy(right[chosen]))
        figures = "  ".join(f"{key} {scores[key]:.2f}" for key in FIGURES if key in scores)
        print(f"{name:12} {part:21} {len(some):5}  {figures}  calibration error {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
