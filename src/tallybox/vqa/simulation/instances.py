"""Questions about real photos, from the objects that a COCO instances file says they show."""

from __future__ import annotations

from pathlib import Path

from tallybox.detections.coco import INSTANCES, read_coco_instances
from tallybox.errors import InputError
from tallybox.json_files import Int64, JsonRecord, read_json
from tallybox.vqa.simulation.annotated import general_name, write_questions


class _GeneralCategory(JsonRecord):
    id: Int64
    name: str
    supercategory: str = ""


class _CategoriesFile(JsonRecord):
    categories: list[_GeneralCategory]


def simulate_from_instances(
    instances: Path, out: Path, *, split: str = "train", questions_per_photo: int = 3, seed: int = 0
) -> dict[str, int]:
    """Write a split's questions, answers and pairs about the photos of a file; return how many questions there are.

    All ten people give the true answer. What is marked as a crowd is not counted, and its kind is known to be there.
    """
    if split not in ("train", "val"):
        raise InputError(f"split must be train or val, as there are answers, but got {split!r}")
    labels = read_coco_instances(instances)
    written = write_questions(labels, _generals(instances), out, split, questions_per_photo, seed, source=instances)
    return {split: written}


def _generals(path: Path) -> dict[int, str]:
    """Return the `general_name` of each of a file's categories."""
    found = read_json(path, _CategoriesFile, INSTANCES).categories
    return {category.id: general_name(category.name, category.supercategory) for category in found}
