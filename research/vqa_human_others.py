"""What else answers people's questions about COCO's 1,000 validation photos: `ask`, `count`, and constant answers.

    python research/vqa_human_others.py ../shared/data runs/human/prepared [CHECKPOINT]     # a minute

`ask` answers with the bundled model, or with another checkpoint that reads the detector's scores, from the regions of
the photos at full size. `count` is asked where a question names one of COCO's categories. The constant answers are the
most common ones in training: for TallyQA one number, for VQA v2 one answer for each of its types of question.
"""

import argparse
import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from category_words import CategoryWords
from vqa_human_data import TALLYQA_FROM, WHOLE, WRITTEN_FROM, other_records

from tallybox import read_detections
from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.photos.shipped import shipped_estimator
from tallybox.vqa.answer import SHIPPED_MODEL
from tallybox.vqa.batches import load_examples
from tallybox.vqa.checkpoints import load_model
from tallybox.vqa.data.answers import normalise
from tallybox.vqa.data.questions import QuestionRecord
from tallybox.vqa.data.splits import EncodedQuestions, encode_words, open_records
from tallybox.vqa.data.store import PHOTOS, FeatureStore
from tallybox.vqa.data.vocabulary import Vocabulary
from tallybox.vqa.prediction import answer
from tallybox.vqa.scoring import LARGEST_COUNT, all_scores, true_count, whole_number

SCORES = 80  # the first columns of the store

Answers = dict[int, str]


def most_common(records: Iterable[QuestionRecord]) -> dict[str, str]:
    """Return the most common answer by the type of a question, and over all of them under ``""``."""
    counts: dict[str, collections.Counter[str]] = {}
    for record in records:
        for kind in ("", record.question_type or ""):
            counts.setdefault(kind, collections.Counter()).update(normalise(one) for one in record.answers or ())
    return {kind: counted.most_common(1)[0][0] for kind, counted in counts.items()}


def constant(records: Sequence[QuestionRecord], by_type: Mapping[str, str]) -> Answers:
    """Answer every question with the most common answer of its type."""
    return {one.question_id: by_type.get(one.question_type or "", by_type[""]) for one in records}


def asked(records: Sequence[QuestionRecord], store: FeatureStore, path: Path) -> Answers:
    """Answer with a model of `ask`."""
    model, checkpoint = load_model(path)
    vocabulary = Vocabulary(checkpoint.words, checkpoint.answers)
    words, lengths = encode_words(vocabulary, records)
    ids = np.array([record.question_id for record in records], np.int64)
    questions = EncodedQuestions(ids, store.rows_of([WHOLE + one.image_id for one in records]), words, lengths, None)
    examples = load_examples(questions, store, torch.device("cpu"), torch.float32, model.config.feature_length)
    return answer(model, checkpoint.answers, examples)


def counted(records: Sequence[QuestionRecord], detections: Path) -> Answers:
    """Answer with `tallybox count` where a question names one category."""
    words, estimator = CategoryWords.of(COCO_CATEGORIES), shipped_estimator()
    images = {str(image.image_id): image for image in read_detections(detections)}
    found = {}
    for record in records:
        named = words.named(record.text) or ()
        if len(named) == 1 and record.counts:
            (category,) = named
            image = images.get(record.image_id)
            found[record.question_id] = (
                "0" if image is None else str(estimator.predict(image, [category])[category].count)
            )
    return found


def figures(answers: Answers, records: Sequence[QuestionRecord]) -> dict[str, float]:
    """Return the accuracy and the errors of answers to some of the questions; ``root`` is without a largest count."""
    some = [one for one in records if one.question_id in answers]
    scores = all_scores({one.question_id: answers[one.question_id] for one in some}, some)
    numbers = [(whole_number(answers[one.question_id]) or 0, true_count(one)) for one in some if one.counts]
    errors = [min(said, LARGEST_COUNT) - truth for said, truth in numbers if truth is not None]
    kept = {key: scores[key] for key in ("all", "yes/no", "number", "other", "count", "count_mae") if key in scores}
    root = float(np.sqrt(np.mean(np.square(errors)))) if errors else float("nan")
    return {"questions": len(some)} | kept | {"rmse": root}


def main() -> None:
    """Print the figures as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("model", type=Path, nargs="?", default=SHIPPED_MODEL)
    given = parser.parse_args()
    store = FeatureStore.open(given.prepared / PHOTOS)
    scores_alone = FeatureStore(
        store.image_ids, store.sizes_wh, store.offsets, store.boxes_xyxy, [part[:, :SCORES] for part in store.features]
    )
    train = open_records(given.prepared, "train")
    people = most_common(one for one in train if one.question_id < TALLYQA_FROM)
    tallyqa = most_common(one for one in train if TALLYQA_FROM <= one.question_id < WRITTEN_FROM)
    for name, records in other_records(given.data, store).items():
        detections = given.data / "coco-count" / "detections_picodet_val.json.gz"
        by_count = counted(records, detections)
        answers = {
            "always the most common answer": constant(records, tallyqa if name.startswith("tallyqa") else people),
            "ask": asked(records, scores_alone, given.model),
        }
        counting = [one for one in records if one.counts]
        both = [one for one in counting if one.question_id in by_count]
        for model, said in answers.items():
            for some, which in ((records, "all"), (counting, "counting"), (both, "naming a category")):
                print(
                    json.dumps(
                        {"set": name, "questions": which, "model": model}
                        | figures({one.question_id: said[one.question_id] for one in some}, some)
                    )
                )
        print(
            json.dumps({"set": name, "questions": "naming a category", "model": "count"} | figures(by_count, records))
        )
        fallback = answers["ask"] | by_count
        print(
            json.dumps(
                {"set": name, "questions": "counting", "model": "count, else ask"}
                | figures({one.question_id: fallback[one.question_id] for one in counting}, counting)
            )
        )


if __name__ == "__main__":
    main()
