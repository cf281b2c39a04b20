"""The page of a question about a photo: what was looked at, how that was counted, and what the model answered."""

from __future__ import annotations

from tallybox.ask.answering import PhotoAnswer
from tallybox.ask.question import quoted
from tallybox.counter.module import Counter
from tallybox.detections.category_names import COCO_CATEGORIES
from tallybox.explorer.counting import Counting, counting_of_component
from tallybox.explorer.photo_data import photo_href
from tallybox.explorer.report import report_page
from tallybox.explorer.story import Step, number
from tallybox.explorer.views import rounded
from tallybox.photos.features import RegionFeatures
from tallybox.photos.images import Photo
from tallybox.presence.module import PresenceCounter


def asked_page(asked: PhotoAnswer, photo: Photo, counter: Counter | PresenceCounter) -> str:
    """Return the HTML of an answer; ``counter`` is what the model counts with on its first glimpse."""
    width, height = photo.size_wh
    return report_page(
        {
            "title": asked.question,
            "source": "asked about a photo, answered by a trained model of visual question answering",
            "image": {"width": width, "height": height, "href": photo_href(photo)},
            "countings": rounded([counting_of_answer(asked, counter)]),
        }
    )


def counting_of_answer(asked: PhotoAnswer, counter: Counter | PresenceCounter) -> Counting:
    """Return how the first glimpse was counted, with the answer that came of it."""
    logits = asked.relevance.numpy()
    counting = counting_of_component(asked.question, asked.regions.boxes_xyxy, logits, counter)
    labels = region_labels(asked.regions)
    return {
        **counting,
        "labels": labels,
        "asked": {"answers": [list(answer) for answer in asked.answers], "unknown_words": list(asked.unknown_words)},
        "steps": [_reading(asked), _glimpse(counting, labels), *counting["steps"][1:], _answer(asked)],
    }


def region_labels(regions: RegionFeatures) -> list[str]:
    """Return the category that each region looks most like."""
    names = list(COCO_CATEGORIES.values())
    return [names[place] for place in regions.scores.argmax(1)]


def _reading(asked: PhotoAnswer) -> Step:
    if not asked.unknown_words:
        return {"title": "The question is read", "text": "Every word of it is known to the model."}
    words = ", ".join(quoted(word) for word in asked.unknown_words)
    return {
        "title": "The question is read",
        "text": f"The model never saw {words}. It answers from the others: take that as a guess.",
    }


def _glimpse(counting: Counting, labels: list[str]) -> Step:
    scores: list[float] = counting["scores"]
    best = max(range(len(scores)), key=scores.__getitem__)
    return {
        "title": f"A glimpse at {len(scores)} regions",
        "text": f"With the question in mind, each region gets attention: most of all box {best + 1}, which "
        f"looks like “{labels[best]}”, {number(scores[best])}. Adding it all up would say {number(sum(scores))}: "
        "objects that were found twice would count twice, and faint regions add a little each.",
    }


def _answer(asked: PhotoAnswer) -> Step:
    said = " or ".join(f"{answer} ({100 * probability:.0f} %)" for answer, probability in asked.others[:2])
    return {
        "title": f"The answer: {asked.answer}",
        "text": "A classifier sees the features of the count, what all glimpses saw, and the question, and knows how "
        f"people answered others like it. It says {asked.answer} ({100 * asked.probability:.0f} %)"
        + (f" rather than {said}." if said else "."),
    }
