"""The data of a page about one image: its picture, and an explained count for each category."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tallybox.detections.categories import named, quantity
from tallybox.detections.detections import Detections, Size
from tallybox.detections.labels import ABSENT_SCORE_ABOVE
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.explanation import CLEAR_PRESENCE
from tallybox.estimator.prediction import CountPrediction, Floats, marked_interval, most_first
from tallybox.explain.explained_count import explain_estimate
from tallybox.photos.images import Photo, jpeg_url

PageCount = dict[str, Any]  # the fields of `ExplainedCount`, and those that only a page shows

MAX_CATEGORIES = 12  # on a page, if none is named; those with the most objects first
MAX_SIDE, JPEG_QUALITY = 1280, 82  # of the photo in a page


def page_data(
    title: str, source: str, size_wh: Size, counts: Sequence[PageCount], photo: Photo | None = None
) -> dict[str, Any]:
    """Return the data of a page about an image; without a photo, boxes are drawn on an empty canvas."""
    width, height = size_wh
    href = None if photo is None else jpeg_url(photo.image, MAX_SIDE, JPEG_QUALITY)
    picture = {"width": width, "height": height, "href": href}
    # Five significant digits, so that pages stay small.
    rounded = json.loads(json.dumps(list(counts)), parse_float=lambda number: float(f"{float(number):.5g}"))
    return {"title": title, "source": source, "image": picture, "counts": rounded}


def estimator_counts(
    estimator: CountEstimator, image: Detections, categories: Sequence[int | str] | None
) -> list[PageCount]:
    """Return the counts of the named categories, by default of those that may be in the image."""
    explanations = estimator.explain(image, categories)
    category_ids = list(explanations)
    if categories is None:
        predictions = {key: explanation.prediction for key, explanation in explanations.items()}
        category_ids = [key for key, p in most_first(predictions) if p.high > 0][:MAX_CATEGORIES]
    if not category_ids:
        raise InputError(
            f"No category of image {image.image_id!r} has a box that scores more than {ABSENT_SCORE_ABOVE:g}; "
            "name one with --category to see why it counts 0."
        )
    counts = []
    (matched,) = estimator.matched([image])
    for key in category_ids:
        predicted, name = explanations[key].prediction, estimator.category_name(key)
        explained, heads = explain_estimate(estimator, image, key, explanations[key])
        others = np.setdiff1d(np.flatnonzero(matched.category_ids == key), explanations[key].indices)
        interval = f"90 % interval: {marked_interval(predicted)}."
        facts = [f"Best estimate: {predicted.count}.", interval if predicted.calibrated else "Not calibrated."]
        counts.append(
            {
                "name": name,
                **asdict(explained),
                "label": quantity(predicted.count, name),
                "headline": headline(name, predicted),
                "facts": [*facts, boxes_in_words(explained.presence, explained.duplicate_of)],
                "other_boxes": image.boxes[others].tolist(),
                "other_heads": [asdict(head) for head in heads[1:]],
            }
        )
    return counts


def headline(name: str, predicted: CountPrediction) -> str:
    """Return what is probable: the shortest range of counts that has at least half of the probability."""
    low, high = likely_range(predicted.probabilities)
    if predicted.saturated:
        return f"About {quantity(predicted.count, name)}"
    if low == high:
        return quantity(low, name)
    return f"Probably {named(f'{low} or {high}' if high == low + 1 else f'{low} to {high}', name)}"


def likely_range(probabilities: Floats) -> tuple[int, int]:
    """Return the shortest range with at least half of the probability; of equally short ones the most probable."""
    sums = np.concatenate(([0], np.cumsum(probabilities)))
    for width in range(1, len(probabilities) + 1):
        inside = sums[width:] - sums[:-width]
        if inside.max() >= 0.5:
            low = int(inside.argmax())
            return low, low + width - 1
    return 0, len(probabilities) - 1


def canvas_size(image: Detections) -> Size:
    """Return the size of an image, or of the area that its boxes need if the size is unknown."""
    if image.image_size is not None or not len(image):
        return image.image_size or (640, 480)
    right, bottom = np.ceil(1.04 * image.boxes[:, 2:].max(0)).clip(1).tolist()
    return int(right), int(bottom)


def boxes_in_words(presence: Sequence[float], duplicate_of: Sequence[int]) -> str:
    """Return how many counted boxes are clear and doubtful: ``Counted boxes: 8 clear, 6 doubtful.``"""
    is_clear = [presence[box] >= CLEAR_PRESENCE for box, into in enumerate(duplicate_of) if into == box]
    numbers = (sum(is_clear), "clear"), (len(is_clear) - sum(is_clear), "doubtful")
    parts = [f"{number} {kind}" for number, kind in numbers if number]
    return f"Counted boxes: {', '.join(parts)}." if parts else "No counted boxes."
