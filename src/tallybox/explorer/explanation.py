"""The page of one image: which categories it shows, and the data that the report draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from tallybox.counter.module import Counter
from tallybox.detections.container import Detections
from tallybox.detections.labels import ABSENT_SCORE_ABOVE
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.explorer.counting import Counting, counting_of_component, counting_of_estimate
from tallybox.explorer.report import report_page
from tallybox.explorer.views import rounded
from tallybox.presence.module import PresenceCounter

UntrainedComponent = Literal["paper", "presence"]

# Categories that a page shows when none is named, those with the most objects first.
SHOWN_AT_MOST = 12

# Objects and boxes that an untrained component is shown with: matrices beyond this cannot be read.
UNTRAINED_OBJECTS = 10
UNTRAINED_BOXES = 48


def explained_by_estimator(
    estimator: CountEstimator, image: Detections, categories: Sequence[int | str] | None
) -> list[Counting]:
    """Return the countings of the named categories, by default of those of which there may be any."""
    explanations = estimator.explain(image, categories)
    if categories is None:
        there = {key: found for key, found in explanations.items() if found.prediction.high > 0}
        most = sorted(there, key=lambda key: -there[key].prediction.expected)[:SHOWN_AT_MOST]
        explanations = {key: there[key] for key in most}
    if not explanations:
        raise InputError(
            f"image {image.image_id!r} must have a category with a box that scores more than {ABSENT_SCORE_ABOVE}, "
            "but got none; name one with --category to see why it counts 0"
        )
    return [counting_of_estimate(estimator, image, key, found) for key, found in explanations.items()]


def explained_untrained(
    component: UntrainedComponent, image: Detections, categories: Sequence[int] | None, names: Mapping[int, str]
) -> list[Counting]:
    """Return what an untrained component says, by default about the categories with the highest scores."""
    best = {key: score for key, score in image.best_scores().items() if score > ABSENT_SCORE_ABOVE}
    shown = sorted(best, key=lambda key: -best[key])[:SHOWN_AT_MOST] if categories is None else categories
    if not shown:
        raise InputError(f"image {image.image_id!r} must have a box that scores more than {ABSENT_SCORE_ABOVE}")
    make = Counter if component == "paper" else PresenceCounter
    countings = []
    for category_id in shown:
        one = image.of_category(category_id)
        order = np.argsort(-one.scores, kind="stable")[:UNTRAINED_BOXES]
        name = names.get(category_id, str(category_id))
        countings.append(counting_of_component(name, one.boxes[order], one.scores[order], make(UNTRAINED_OBJECTS)))
    return countings


def explanation_page(title: str, source: str, image: Detections, countings: list[Counting], href: str | None) -> str:
    """Return the HTML of one image's countings; ``href`` is its photo as a data URL, None for an empty canvas."""
    width, height = canvas_size(image)
    picture: dict[str, Any] = {"width": width, "height": height, "href": href}
    return report_page({"title": title, "source": source, "image": picture, "countings": rounded(countings)})


def canvas_size(image: Detections) -> tuple[int, int]:
    """Return the size of an image, of the area its boxes need where it is not known."""
    if image.image_size is not None:
        return image.image_size
    if not len(image):
        return 640, 480
    right, bottom = image.boxes[:, 2:].max(0)
    return max(int(np.ceil(right * 1.04)), 1), max(int(np.ceil(bottom * 1.04)), 1)
