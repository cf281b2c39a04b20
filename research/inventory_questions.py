"""Training questions from an inventory: how many objects of each of COCO's categories photos show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.detections.labels import TrueCounts
from tallybox.vqa.simulation.instances import category_facts, general_name, write_questions
from tallybox.vqa.simulation.questions import Query
from tallybox.vqa.simulation.simulate import read_inventory


def ask_about_inventory(
    image_ids: Sequence[int], inventory: Path, out: Path, *, questions_per_photo: int = 1, seed: int = 0
) -> int:
    """Write training questions about photos and return their number."""
    counts = read_inventory(inventory)
    labels = TrueCounts({image_id: counts.get(image_id, {}) for image_id in image_ids}, categories=COCO_CATEGORIES)
    generals = {category_id: general_name(name) for category_id, name in COCO_CATEGORIES.items()}
    # Without synonyms: the human questions that these join have their own.
    facts = {
        image_id: {
            Query(query.family, query.words): answer
            for query, answer in category_facts(labels, image_id, generals).items()
        }
        for image_id in image_ids
    }
    return write_questions(facts, out, "train", questions_per_photo, seed, source=inventory)
