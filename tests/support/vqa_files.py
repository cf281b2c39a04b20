"""Small sets of questions, answers and features, written as the official files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def write_json(path: Path, content: Any) -> Path:
    text = json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def question(question_id: int, image_id: int = 7, text: str = "How many dogs are there?") -> dict[str, Any]:
    return {"question_id": question_id, "image_id": image_id, "question": text}


def annotation(question_id: int, answers: list[str], image_id: int = 7, answer_type: str = "number") -> dict[str, Any]:
    ten = [
        {"answer": answer, "answer_confidence": "yes", "answer_id": place} for place, answer in enumerate(answers, 1)
    ]
    return {
        "question_id": question_id,
        "image_id": image_id,
        "answer_type": answer_type,
        "question_type": "how many",
        "multiple_choice_answer": answers[0] if answers else "",
        "answers": ten,
    }


def questions_file(path: Path, questions: list[dict[str, Any]]) -> Path:
    return write_json(path, {"info": {"a": [1]}, "task_type": "Open-Ended", "questions": questions, "license": {}})


def annotations_file(path: Path, annotations: list[dict[str, Any]]) -> Path:
    return write_json(path, {"info": {}, "annotations": annotations})
