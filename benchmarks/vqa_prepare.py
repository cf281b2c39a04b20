"""Prepare as many questions as VQA v2 has, and a share of its photos, and time the steps.

    python benchmarks/vqa_prepare.py FOLDER     # JSON; a twentieth of the photos: 3 GB to write, 0.9 GB prepared

Photos have 36 proposals of 2,048 features, in a TSV of bottom-up attention; questions and answers are made up, in files
of the official formats. The time for photos grows in proportion to their number.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.vqa import LENGTHS, SHARES

from tallybox.runs import versions
from tallybox.vqa.data.official import official_files
from tallybox.vqa.data.prepare import prepare
from tallybox.vqa.data.store import PhotoFeatures, write_tsv
from tallybox.vqa.simulation import write_json

QUESTIONS = {"train2014": 443_757, "val2014": 214_354, "test2015": 447_793}
PHOTOS = 123_287  # of training and validation
PROPOSALS, FEATURES = 36, 2_048
WORDS, ANSWERS = 15_000, 3_000


def photos(number: int) -> Iterator[PhotoFeatures]:
    """Yield photos of random proposals; features are those of a pool, as drawing them all takes longer than reading."""
    random = np.random.default_rng(0)
    pool = np.abs(random.standard_normal((512, FEATURES), np.float32))
    for image_id in range(number):
        corner = random.uniform(0, 400, (PROPOSALS, 2))
        boxes = np.concatenate((corner, corner + random.uniform(10, 200, (PROPOSALS, 2))), 1).astype(np.float32)
        yield PhotoFeatures(str(image_id), (640.0, 640.0), boxes, pool[random.integers(0, len(pool), PROPOSALS)])


def write_questions(folder: Path, name: str, number: int, photo_number: int) -> None:
    """Write questions of random words, and except for the test split ten answers to each."""
    random = np.random.default_rng(number)
    lengths = random.choice(LENGTHS, number, p=np.array(SHARES) / sum(SHARES))
    words = random.integers(0, WORDS, (number, max(LENGTHS)))
    answers = np.minimum(random.zipf(1.4, (number, 10)), ANSWERS)
    image_ids = random.integers(0, photo_number, number).tolist()
    questions, annotations = [], []
    for question_id, image_id in enumerate(image_ids):
        text = " ".join(f"w{word}" for word in words[question_id, : lengths[question_id]].tolist()) + "?"
        questions.append({"image_id": image_id, "question": text, "question_id": question_id})
        people = [
            {"answer": f"a{answer}", "answer_confidence": "yes", "answer_id": person}
            for person, answer in enumerate(answers[question_id].tolist(), start=1)
        ]
        identity = {"image_id": image_id, "question_id": question_id}
        annotations.append({**identity, "question_type": "none of", "answer_type": "other", "answers": people})
    files: dict[str, Any] = {f"v2_OpenEnded_mscoco_{name}_questions.json": {"questions": questions}}
    if not name.startswith("test"):
        files[f"v2_mscoco_{name}_annotations.json"] = {"annotations": annotations}
    for file_name, content in files.items():
        write_json(folder / file_name, content)


def main() -> None:
    """Write the files, prepare them, and print seconds and bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", type=int, default=20, help="one of so many photos is made")
    arguments = parser.parse_args()
    official, features, out = (arguments.folder / name for name in ("official", "features.tsv", "prepared"))
    official.mkdir(parents=True, exist_ok=True)
    photo_number = PHOTOS // arguments.share
    write_tsv(features, photos(photo_number))
    for name, number in QUESTIONS.items():
        write_questions(official, name, number, photo_number)

    seconds: dict[str, float] = defaultdict(float)
    last = time.perf_counter()

    def on_progress(step: str, done: int, total: int) -> None:
        nonlocal last
        now = time.perf_counter()
        seconds[step] += now - last if done else 0  # a step that begins: the time before was another's
        last = now

    start = time.perf_counter()
    prepared = prepare(official_files(official), [features], out, on_progress=on_progress)
    total = time.perf_counter() - start
    seconds_of_photos = seconds["photos"]
    store_bytes = prepared["store_bytes"]
    result = {
        "photos": prepared["photos"],
        "questions": sum(prepared["questions"].values()),
        "versions": versions(),
        "seconds": round(total, 1),
        "seconds_of_photos": round(seconds_of_photos, 1),
        "seconds_of_questions": round(total - seconds_of_photos, 1),
        "bytes_of_photos": store_bytes,
        "bytes_of_questions": sum(path.stat().st_size for path in out.iterdir() if path.is_file()),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
