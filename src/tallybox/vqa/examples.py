"""`tallybox vqa examples`: questions with boxes, A, D, C, count and answers, as in the paper's last appendix."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tallybox.counter.module import Counter
from tallybox.errors import InputError
from tallybox.vqa.batches import StreamedExamples
from tallybox.vqa.data.prepare import PHOTOS
from tallybox.vqa.data.splits import open_questions, open_records
from tallybox.vqa.data.store import FeatureStore
from tallybox.vqa.model import FirstGlimpse, PublishedFirstGlimpse
from tallybox.vqa.prediction import load_run, prepared_folder

MATRICES = {"A": "relevance", "D": "distance", "C": "count_matrix"}


def counting_examples(
    run: Path,
    question_ids: Sequence[int] | None = None,
    *,
    number: int = 8,
    split: str = "val",
    prepared: Path | None = None,
) -> list[dict[str, Any]]:
    """Return what a run of the counter model computes for some counting questions, ready for JSON.

    Each has ``question``, ``question_id``, ``image_id``, ``size_wh``, the kept ``boxes`` (pixels) with their
    ``attention``, the matrices ``A``, ``D`` and ``C``, the ``count``, the ``prediction`` and the ``truth``, the most
    frequent answer. Without ids, the first ``number`` questions that start with "how many" are taken.
    """
    model, checkpoint = load_run(run)
    if not (isinstance(model.count, FirstGlimpse) and isinstance(model.count.counter, Counter)):
        raise InputError(f"{run} must be a run of the counter model, but it is one of {checkpoint.config.model.name}")
    folder = prepared_folder(run, prepared)
    questions, records = open_questions(folder, split), open_records(folder, split)
    store = FeatureStore.open(folder / PHOTOS)
    row_of = {int(key): row for row, key in enumerate(questions.question_ids)}
    if question_ids is None:
        question_ids = [record.question_id for record in records if record.counts][:number]
    if unknown := [key for key in question_ids if key not in row_of]:
        raise InputError(f"question ids must be of split {split}, but got {unknown[0]}")
    rows = np.array([row_of[key] for key in question_ids], np.int64)
    if not len(rows):
        raise InputError(f'split {split} must have a question that starts with "how many", but has none')
    length = checkpoint.config.model.feature_length
    examples = StreamedExamples(questions, store, torch.device("cpu"), torch.float32, length)
    batch = model.padded(next(examples.batches([rows])).batch)
    with torch.no_grad():
        logits, glimpses = model(batch)
        if isinstance(model.count, PublishedFirstGlimpse):
            proposals, distance, found = model.count.quantities(glimpses, batch.boxes)
            trace = {name: value.tolist() for name, value in {**vars(found), "distance": distance}.items()}
            trace |= {"attention": proposals.attention.tolist(), "boxes": proposals.boxes.tolist()}
            trace |= {"count": found.count.flatten().tolist(), "mask": torch.ones_like(proposals.attention).tolist()}
        else:
            trace = model.count.counter.explain(model.count.log_odds(glimpses), batch.boxes, batch.mask).to_dict()
    shown = []
    for index, row in enumerate(rows):
        record = records[row]
        kept = [k for k, is_real in enumerate(trace["mask"][index]) if is_real]
        shown.append(
            {
                "question": record.text,
                "question_id": record.question_id,
                "image_id": record.image_id,
                "size_wh": store.sizes_wh[questions.images[row]].tolist(),
                "boxes": [trace["boxes"][index][k] for k in kept],
                "attention": [trace["attention"][index][k] for k in kept],
                **{name: [[trace[key][index][i][j] for j in kept] for i in kept] for name, key in MATRICES.items()},
                "count": trace["count"][index],
                "prediction": checkpoint.answers[int(logits[index].argmax())],
                "truth": None if record.answers is None else Tally(record.answers).most_common(1)[0][0],
            }
        )
    return shown
