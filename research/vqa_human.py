"""The paper's table on human questions of VQA v2 about real photos, seen by PicoDet.

    python research/vqa_human.py ../shared/data runs/vqa-human --seeds 5 --device cuda
    python research/vqa_human.py ../shared/data runs/vqa-human-try --share 40 --seeds 1 --epochs 1     # does it run?

The folder given holds `vqa2-photos` (regions of all photos) and `vqa2-subset` (questions and answers). Training
questions about photos of validation questions are left out. A region's features are 80 scores times 3 and 48 principal
components times 0.5. The same command goes on after an interruption. It writes `scores.json`, and `answers.npz` with
the answers of each run as indices into a table, in the order of the validation questions.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from vqa_figures import markdown_table
from written_questions import join

from tallybox.devices import device_or_default
from tallybox.files import atomic_writing, write_text
from tallybox.vqa.config import MODELS, read_configuration
from tallybox.vqa.data.official import official_files, read_questions
from tallybox.vqa.data.photos import PhotoFeatures
from tallybox.vqa.data.prepare import prepare
from tallybox.vqa.data.splits import open_pairs, open_records
from tallybox.vqa.data.store import write_features
from tallybox.vqa.prediction import predict_run
from tallybox.vqa.scoring import all_scores
from tallybox.vqa.training import train_prepared

CONFIG = Path(__file__).parent.parent / "configs" / "vqa_human.toml"
CATEGORIES = 80
SIZE = 256.0  # pixels of the photos, which were stretched to squares
SCORE_SCALE, COMPONENT_SCALE = 3.0, 0.5


def photos_of(path: Path, share: int) -> Iterator[PhotoFeatures]:
    """Yield the regions of one of ``share`` photos, or of all."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    ends = np.cumsum(arrays["num_boxes"], dtype=np.int64)
    for row in range(0, len(ends), share):
        rows = slice(int(ends[row]) - int(arrays["num_boxes"][row]), int(ends[row]))
        scores = np.zeros((rows.stop - rows.start, CATEGORIES), np.float32)
        np.put_along_axis(scores, arrays["top_categories"][rows].astype(np.int64), arrays["top_scores"][rows] / 255, 1)
        components = arrays["features"][rows] * arrays["features_scale"] + arrays["features_offset"]
        features = np.concatenate((SCORE_SCALE * scores, COMPONENT_SCALE * components), 1).astype(np.float32)
        boxes = (arrays["boxes"][rows] / 65_535 * SIZE).astype(np.float32)
        yield PhotoFeatures(str(arrays["image_ids"][row]), (SIZE, SIZE), boxes, features)


def main() -> None:
    """Prepare the data, train all models and seeds, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=int, default=1, help="one of so many photos, to try the script")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device")
    given = parser.parse_args()
    features, prepared, device = (
        given.out / "regions.safetensors",
        given.out / "prepared",
        device_or_default(given.device),
    )
    if not features.exists():
        write_features(features, photos_of(given.data / "vqa2-photos" / "features_picodet_256px.npz", given.share))
    questions = given.data / "vqa2-subset"
    files = official_files(questions)
    scored = frozenset(int(one.image_id) for one in read_questions(files["val"].questions))
    join(questions, None, given.out / "questions", "train", without_photos=scored)
    files |= official_files(given.out / "questions")
    done = prepare(files, [features], prepared, skip_missing=given.share > 1)
    print(done["questions"], flush=True)
    records, pairs = open_records(prepared, "val"), open_pairs(prepared, "val")
    scores: dict[str, list[dict[str, float]]] = {}
    answers: dict[str, list[str]] = {}
    for seed in range(given.seeds):
        for name in MODELS:
            config = read_configuration(CONFIG, model={"name": name}, training={"epochs": given.epochs})
            config = replace(config, training=replace(config.training, seed=seed))
            run = given.out / f"{name}-{seed}"
            train_prepared(prepared, run, config, validate_every=0, device=device)
            predictions = predict_run(run, split="val", device=device)[1]
            scores.setdefault(name, []).append(all_scores(predictions, records, pairs))
            answers[f"{name}-{seed}"] = [predictions[record.question_id] for record in records]
            print(name, seed, {key: round(scores[name][-1][key], 1) for key in ("all", "count")}, flush=True)
    table = sorted({answer for given_answers in answers.values() for answer in given_answers})
    index = {answer: number for number, answer in enumerate(table)}
    with atomic_writing(given.out / "answers.npz") as file:
        coded = {run: np.array([index[one] for one in said], np.uint16) for run, said in answers.items()}
        np.savez_compressed(file, table=np.array(table), **coded)
    write_text(given.out / "scores.json", json.dumps(scores, indent=1) + "\n")
    print(markdown_table(scores))


if __name__ == "__main__":
    main()
