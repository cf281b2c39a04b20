"""The data of a page about a VQA answer: the attention of the model, its count, and the answers."""

from typing import Any

from tallybox.counter.module import Counter
from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.explain.explained_count import explain_component
from tallybox.explain.page_data import page_count, page_data
from tallybox.photos.images import Photo
from tallybox.presence.module import PresenceCounter
from tallybox.vqa.answer import PhotoAnswer
from tallybox.vqa.data.photos import PhotoFeatures


def answer_page(answer: PhotoAnswer, photo: Photo, counter: Counter | PresenceCounter) -> dict[str, Any]:
    """Return the data of the page about an answer; ``counter`` is the model's layer on its first attention map."""
    explained = explain_component(answer.regions.boxes_xyxy, answer.relevance.numpy(), counter)
    facts = [f"Probability: {100 * answer.probability:.0f} %."]
    if answer.unknown_words:
        facts.append(f"Unknown words: {', '.join(answer.unknown_words)}. The answer is a guess.")
    count = page_count(
        answer.question,
        explained,
        label=answer.answer,
        headline=answer.answer,
        facts=facts,
        labels=region_labels(answer.regions),
        answers=[[text, probability] for text, probability in answer.answers],
    )
    source = (
        "Experimental: answered by a small model of visual question answering, not by the counts of `tallybox count`"
    )
    return page_data(answer.question, source, photo.size_wh, [count], photo)


def region_labels(regions: PhotoFeatures) -> list[str]:
    """Return the category that each region looks most like."""
    names = list(COCO_CATEGORIES.values())
    return [names[category] for category in regions.features.argmax(1)]
