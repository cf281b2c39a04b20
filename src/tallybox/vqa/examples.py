"""`tallybox vqa examples`: questions with boxes, A, D, C, count and answers, as in the paper's last appendix."""

from collections import Counter as Tally
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tallybox.counter.module import Counter
from tallybox.errors import InputError
from tallybox.vqa.batches import StreamedExamples
from tallybox.vqa.data.splits import open_records
from tallybox.vqa.model import GlimpseCounter, PublishedFirstGlimpse
from tallybox.vqa.prediction import load_run, open_for_model, prepared_folder

MATRICES = {"A": "relevance", "D": "distance", "C": "count_matrix"}


def counting_examples(
    run: Path, question_ids: Sequence[int] = (), *, number: int = 8, split: str = "val", prepared: Path | None = None
) -> list[dict[str, Any]]:
    """Return what a run of the counter model computes for counting questions, ready for JSON.

    Each has ``question``, ``question_id``, ``image_id``, ``size_wh``, the kept ``boxes`` (pixels) with their
    ``attention``, the matrices ``A``, ``D`` and ``C``, the ``count``, the ``prediction`` and the ``truth``, the most
    frequent answer. Without ids, the first ``number`` questions that start with "how many" are taken.
    """
    model, checkpoint = load_run(run)
    if not (isinstance(model.count, GlimpseCounter) and isinstance(model.count.counter, Counter)):
        raise InputError(f"{run} must be a run of the counter model, but it is one of {checkpoint.config.model.name}")
    folder = prepared_folder(run, prepared)
    (questions, store), records = open_for_model(checkpoint, folder, split), open_records(folder, split)
    row_of = {record.question_id: row for row, record in enumerate(records)}
    question_ids = question_ids or [record.question_id for record in records if record.counts][:number]
    if not question_ids:
        raise InputError(f'split {split} must have a question that starts with "how many", but has none')
    if unknown := [question_id for question_id in question_ids if question_id not in row_of]:
        raise InputError(f"question ids must be of split {split}, but got {unknown[0]}")
    rows = np.array([row_of[question_id] for question_id in question_ids])
    length = checkpoint.config.model.feature_length
    examples = StreamedExamples(questions, store, torch.device("cpu"), torch.float32, length)
    batch = model.padded(next(examples.batches([rows])).batch)
    with torch.no_grad():
        logits, glimpses = model(batch)
        trace: dict[str, Any]
        if isinstance(model.count, PublishedFirstGlimpse):
            kept, distance, quantities = model.count.quantities(glimpses, batch.boxes)
            trace = {**vars(quantities), **kept._asdict(), "distance": distance, "count": quantities.count.flatten()}
            trace["mask"] = torch.ones_like(kept.attention, dtype=torch.bool)
        else:
            trace = vars(model.count.counter.explain(model.count.log_odds(glimpses), batch.boxes, batch.mask))
    described = []
    for index, row in enumerate(rows):
        record, real = records[row], trace["mask"][index]
        described.append(
            {
                "question": record.text,
                "question_id": record.question_id,
                "image_id": record.image_id,
                "size_wh": store.sizes_wh[questions.images[row]].tolist(),
                "boxes": trace["boxes"][index][real].tolist(),
                "attention": trace["attention"][index][real].tolist(),
                **{name: trace[key][index][real][:, real].tolist() for name, key in MATRICES.items()},
                "count": trace["count"][index].item(),
                "prediction": checkpoint.answers[int(logits[index].argmax())],
                "truth": None if record.answers is None else Tally(record.answers).most_common(1)[0][0],
            }
        )
    return described
