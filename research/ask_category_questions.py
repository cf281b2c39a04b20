"""How well counts answer the questions of `tallybox ask` that are about one category, beside the model alone.

    python research/ask_category_questions.py PREPARED ../shared/data/coco-count                  # validation photos
    python research/ask_category_questions.py PREPARED ../shared/data/coco-count --held-out RUN   # to choose by

With ``--held-out`` a fifth of the training photos is scored: the model is that of
`research/vqa_evidence.py photos PREPARED RUN --on held-out --models presence --seeds 0`, and an estimator is fitted to
the other four fifths (three minutes on a core).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ask_confidence import model_logits
from calibration import calibration_error
from vqa_evidence import FOLDS
from written_questions import WRITTEN_FROM

import tallybox.ask.category_questions as category_questions
from tallybox import CountEstimator, read_counts, read_detections
from tallybox.ask import SHIPPED_MODEL
from tallybox.ask.category_questions import answer_from_counts, read_category_question
from tallybox.estimator.prediction import CountPrediction
from tallybox.photos.shipped import shipped_estimator
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.data.prepare import PHOTOS
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import open_questions, open_records
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.scoring import all_scores

FIGURES = ("yes/no", "other", "all", "count", "count_mae")
AGREEING = 3  # people, for an answer to be right
Answers = list[tuple[str, float]]  # with its probability, for each question


@dataclass(frozen=True)
class Asked:
    """Questions with what the model alone answers, and an estimator that learned from none of their photos."""

    records: list[QuestionRecord]
    by_model: Answers
    estimator: CountEstimator


def main() -> None:
    """Print the scores of the model alone, and of counts where they answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("data", type=Path, help="detections_picodet_*.json.gz and instances_train.json.gz")
    parser.add_argument("--held-out", type=Path, help="what research/vqa_evidence.py --on held-out wrote")
    parser.add_argument("--estimator", type=Path, help="fitted to the four fifths before; else it is fitted now")
    given = parser.parse_args()
    split = "val" if given.held_out is None else "train"
    asked = validation(given.prepared) if given.held_out is None else held_out(given)
    images = {one.image_id: one for one in read_detections(given.data / f"detections_picodet_{split}.json.gz")}
    predictions = predicted_counts(asked, images)
    show("model alone", asked.records, asked.by_model)
    for from_share in (0.5, 0.8, 0.9, 0.95, 0.98, 2.0):
        category_questions.NONE_FROM = from_share
        show(f"counts; none from {from_share}", asked.records, answers_with_counts(asked, predictions))
    category_questions.NONE_FROM = 2.0
    show("counts; none never; most probable", asked.records, answers_with_counts(asked, predictions, median=False))


def validation(prepared: Path) -> Asked:
    """Return the validation questions."""
    _, checkpoint = load_model(SHIPPED_MODEL)
    logits = model_logits(SHIPPED_MODEL, prepared)
    return Asked(
        open_records(prepared, "val"),
        best_answers(logits, checkpoint.answers, checkpoint.temperature),
        shipped_estimator(),
    )


def held_out(given: argparse.Namespace) -> Asked:
    """Return the questions about a fifth of the training photos."""
    store = FeatureStore.open(given.prepared / PHOTOS)
    questions = open_questions(given.prepared, "train")
    held = questions.images % FOLDS == FOLDS - 1
    records = [one for one, is_held in zip(open_records(given.prepared, "train"), held, strict=True) if is_held]
    stored = np.load(given.held_out / "logits_presence_0.npz")
    assert stored["question_ids"].tolist() == [one.question_id for one in records]
    _, shipped = load_model(SHIPPED_MODEL)
    by_model = best_answers(torch.from_numpy(stored["logits"]), shipped.answers, shipped.temperature)
    if given.estimator is not None:
        return Asked(records, by_model, CountEstimator.load(given.estimator))
    held_photos = {store.image_ids[row] for row in range(len(store.image_ids)) if row % FOLDS == FOLDS - 1}
    others = (
        one
        for one in read_detections(given.data / "detections_picodet_train.json.gz")
        if one.image_id not in held_photos
    )
    return Asked(records, by_model, CountEstimator().fit(others, read_counts(given.data / "instances_train.json.gz")))


def best_answers(logits: torch.Tensor, answers: tuple[str, ...], temperature: float) -> Answers:
    """Return the most probable answer to each question."""
    best = (logits.float() / temperature).softmax(-1).max(-1)
    return list(zip((answers[index] for index in best.indices), best.values.tolist(), strict=True))


def predicted_counts(asked: Asked, images: dict) -> list[dict[int, CountPrediction]]:
    """Return for each question what is predicted of the categories that it names."""
    last = asked.estimator.fitted.config.max_objects
    wanted: dict[int, set[int]] = {}
    for record in asked.records:
        question = read_category_question(record.text, last)
        wanted.setdefault(record.image_id, set()).update(question.category_ids if question else ())
    by_image = {
        image: asked.estimator.predict(images[image], sorted(ids)) if ids and image in images else {}
        for image, ids in wanted.items()
    }
    return [dict(by_image[record.image_id]) for record in asked.records]


def answers_with_counts(asked: Asked, predictions: list, *, median: bool = True) -> Answers:
    """Return the answers of counts where they answer, and of the model elsewhere."""
    answers = []
    last = asked.estimator.fitted.config.max_objects
    for record, predicted, by_model in zip(asked.records, predictions, asked.by_model, strict=True):
        question = read_category_question(record.text, last)
        counted = None
        if question is not None and predicted:
            counted = answer_from_counts(question, [predicted[one] for one in sorted(question.category_ids)])
        if counted is None:
            answers.append(by_model)
        else:
            answers.append(counted.answers[0] if median else max(counted.answers, key=lambda one: one[1]))
    return answers


def show(name: str, records: list[QuestionRecord], answers: Answers) -> None:
    """Print the scores and the calibration error of all questions, of people and templates, and of the written ones."""
    right = np.array(
        [(one.answers or ()).count(said) >= AGREEING for one, (said, _) in zip(records, answers, strict=True)]
    )
    probable = np.array([probability for _, probability in answers])
    written = np.array([one.question_id >= WRITTEN_FROM for one in records])
    for part, chosen in (("all", written >= 0), ("people and templates", ~written), ("written", written)):
        some = [record for record, is_chosen in zip(records, chosen, strict=True) if is_chosen]
        said = {
            one.question_id: answer
            for one, (answer, _), is_chosen in zip(records, answers, chosen, strict=True)
            if is_chosen
        }
        scores = all_scores(said, some, np.zeros((0, 2), np.int64))
        error = calibration_error(torch.from_numpy(probable[chosen]), torch.from_numpy(right[chosen]))
        figures = "  ".join(f"{key} {scores[key]:.2f}" for key in FIGURES if key in scores)
        print(f"{name:36} {part:22} {len(some):5}  {figures}  calibration error {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
