"""Convert counting benchmarks to VQA's JSON, for `tallybox vqa prepare`.

    python examples/vqa_converters/questions.py tallyqa train.json test.json --out tallyqa
    python examples/vqa_converters/questions.py howmany question_ids.json VQA-FOLDER VG-FOLDER --out howmany

TallyQA: train and val are its train.json and test.json; "simple" and "complex" become the question type. HowMany-QA
lists questions of VQA v2, whose official files are in VQA-FOLDER, and of Visual Genome, whose question_answers.json and
image_data.json are in VG-FOLDER; its dev becomes val, its test an answered split of a folder of its own. Photos of
Visual Genome get ids like VG/400.
"""

import argparse
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tallybox.files import open_binary
from tallybox.vqa.data.answers import NUMBERS_TO_TWENTY
from tallybox.vqa.data.official import official_files
from tallybox.vqa.data.store import photo_id
from tallybox.vqa.simulation import YEARS, write_json

WORD = re.compile(r"[a-z0-9]+")


def main() -> None:
    """Convert the files of one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=["tallyqa", "howmany"])
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.benchmark == "tallyqa":
        for split, path in zip(("train", "val"), given.sources, strict=False):
            write_split(given.out, split, map(tallyqa_question, read(path)))
        return
    ids, vqa, genome = given.sources
    parts, files = read(ids), official_files(vqa)
    records = {split: vqa_questions(files[split].questions, files[split].annotations) for split in ("train", "val")}
    genome_records = genome_questions(genome, set(parts["train"]["visual_genome"]))
    write_split(given.out, "train", (*chosen(parts["train"]["vqa"], records["train"]), *genome_records))
    write_split(given.out, "val", chosen(parts["dev"], records["val"]))
    write_split(given.out / "test", "val", chosen(parts["test"], records["val"]))


def read(path: Path) -> Any:
    """Read a JSON file, gzipped or not."""
    with open_binary(path) as file:
        return json.load(file)


def tallyqa_question(record: dict[str, Any]) -> dict[str, Any]:
    """Return a question of TallyQA with its answer."""
    kind = {None: "how many", True: "simple", False: "complex"}[record.get("issimple")]
    image_id = photo_id(record["image"])
    return asked(record["question_id"], image_id, record["question"], [str(record["answer"])], kind)


def vqa_questions(questions: Path, annotations: Path | None) -> dict[int, dict[str, Any]]:
    """Return VQA v2's questions with their ten answers, by id."""
    by_id = {one["question_id"]: one for one in read(questions)["questions"]}
    answers = {one["question_id"]: one for one in (read(annotations)["annotations"] if annotations else ())}
    return {
        key: asked(key, one["image_id"], one["question"], [people["answer"] for people in answers[key]["answers"]])
        for key, one in by_id.items()
        if key in answers
    }


def genome_questions(folder: Path, question_ids: set[int]) -> Iterable[dict[str, Any]]:
    """Yield questions of Visual Genome with negative ids: both sources count from small numbers."""
    coco_ids = {one["image_id"]: one.get("coco_id") for one in read(folder / "image_data.json")}
    for photo in read(folder / "question_answers.json"):
        for one in photo["qas"]:
            if one["qa_id"] in question_ids and (count := count_in(one["answer"])) is not None:
                coco_id = coco_ids.get(one["image_id"])
                image_id = f"VG/{one['image_id']}" if coco_id is None else str(coco_id)
                yield asked(-one["qa_id"], image_id, one["question"], [str(count)])


def chosen(question_ids: Iterable[int], by_id: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the listed questions, each once."""
    return [by_id[question_id] for question_id in dict.fromkeys(question_ids)]


def count_in(answer: str) -> int | None:
    """Return the first number in an answer, in digits or as a word up to twenty.

    >>> count_in("There are Twelve."), count_in("3 or 4."), count_in("Many.")
    (12, 3, None)
    """
    for word in WORD.findall(answer.lower()):
        if word.isdigit():
            return int(word)
        if word in NUMBERS_TO_TWENTY:
            return NUMBERS_TO_TWENTY.index(word)
    return None


def asked(
    question_id: int, image_id: int | str, text: str, answers: list[str], question_type: str = "how many"
) -> dict[str, Any]:
    """Return a question and its annotation in one record."""
    return {
        "question_id": question_id,
        "image_id": image_id,
        "question": text,
        "answer_type": "number",
        "question_type": question_type,
        "answers": [{"answer": answer} for answer in answers],
    }


def write_split(folder: Path, split: str, records: Iterable[dict[str, Any]]) -> None:
    """Write a split as the two official files."""
    listed = list(records)
    keys = ("question_id", "image_id", "question")
    questions = [{key: record[key] for key in keys} for record in listed]
    annotations = [{key: value for key, value in record.items() if key != "question"} for record in listed]
    write_json(folder / f"v2_OpenEnded_mscoco_{YEARS[split]}_questions.json", {"questions": questions})
    write_json(folder / f"v2_mscoco_{YEARS[split]}_annotations.json", {"annotations": annotations})
    print(f"{folder}, {split}: {len(listed)} questions")


if __name__ == "__main__":
    main()
