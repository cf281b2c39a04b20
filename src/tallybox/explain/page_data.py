"""The data of a report on one image: its picture, and a counting for each category."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from io import BytesIO
from typing import Any

import numpy as np

from tallybox.counter.module import Counter
from tallybox.detections.detections import Detections
from tallybox.detections.labels import ABSENT_SCORE_ABOVE
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.explanation import CountExplanation, merged_into
from tallybox.explain.counting import Counting, count_with_baselines, count_with_component
from tallybox.explain.steps import component_steps, prediction_step
from tallybox.explain.summaries import Summary, component_summary, predicted_summary
from tallybox.explain.traces import ComponentName, HeadTrace, head_trace
from tallybox.photos.images import Photo
from tallybox.presence.module import PresenceCounter

PageCounting = dict[str, Any]  # the fields of `Counting`, and what only a report shows

MAX_CATEGORIES = 12  # that a report shows where none is named, those with the most objects first

# Of an untrained component: larger matrices cannot be read.
UNTRAINED_OBJECTS = 10
UNTRAINED_BOXES = 48

# Of the photo in a report.
MAX_SIDE = 1280
JPEG_QUALITY = 82


def page_data(
    title: str, source: str, size_wh: tuple[int, int], countings: Sequence[PageCounting], photo: Photo | None = None
) -> dict[str, Any]:
    """Return the data of a report on an image; without a photo, boxes are drawn on an empty canvas."""
    width, height = size_wh
    picture = {"width": width, "height": height, "href": None if photo is None else photo_url(photo)}
    return {"title": title, "source": source, "image": picture, "countings": rounded(list(countings))}


def page_counting(name: str, counting: Counting, summary: Summary | None = None, **more: Any) -> PageCounting:
    """Return a counting as a report shows it, by default of one component alone."""
    sentences = asdict(summary or component_summary(name, counting))
    return {"name": name, **asdict(counting), "summary": sentences, "prediction": None, "other_heads": [], **more}


def estimator_countings(
    estimator: CountEstimator, image: Detections, categories: Sequence[int | str] | None
) -> list[PageCounting]:
    """Return the countings of the named categories, by default of those that may be in the image."""
    explanations = estimator.explain(image, categories)
    category_ids = list(explanations)
    if categories is None:
        possible = [category_id for category_id in explanations if explanations[category_id].prediction.high > 0]
        most_first = sorted(possible, key=lambda category_id: -explanations[category_id].prediction.expected)
        category_ids = most_first[:MAX_CATEGORIES]
    if not category_ids:
        raise InputError(
            f"image {image.image_id!r} must have a category with a box that scores more than {ABSENT_SCORE_ABOVE}, "
            "but got none; name one with --category to see why it counts 0"
        )
    return [estimator_counting(estimator, image, key, explanations[key]) for key in category_ids]


def estimator_counting(
    estimator: CountEstimator, image: Detections, category_id: int, explanation: CountExplanation
) -> PageCounting:
    """Return how a fitted estimator counts one category of an image, with a trace for each head of each member."""
    fitted, predicted = estimator.fitted, explanation.prediction
    boxes, scores = image.boxes[explanation.indices], image.scores[explanation.indices]
    heads = {
        f"model {number}": head_trace(trace, component, 0)
        for number, (trace, component) in enumerate(
            zip(explanation.traces, fitted.ensemble.components(), strict=True), start=1
        )
    }
    (first_name, first), *other_heads = heads.items()
    merged = merged_into(explanation).tolist()
    thresholds = fitted.baselines["nms"]["exact"]
    counting = Counting(
        **vars(first),
        boxes=boxes.tolist(),
        scores=scores.tolist(),
        count=predicted.count,
        confidence=None,
        distribution=predicted.probabilities.tolist(),
        presence=explanation.presence.tolist(),
        merged_into=merged,
        baselines=count_with_baselines(boxes, scores, thresholds.by_category.get(category_id, thresholds.overall)),
        steps=[
            *component_steps(_mean_head([*heads.values()]), scores.tolist(), merged),
            prediction_step(predicted, fitted.config.members),
        ],
    )
    name = estimator.category_name(category_id)
    return page_counting(
        name,
        counting,
        predicted_summary(name, predicted, counting),
        prediction=predicted.to_dict(),
        head_name=first_name,
        other_heads=[{"head_name": head_name, **asdict(head)} for head_name, head in other_heads],
    )


def untrained_countings(
    component: ComponentName, image: Detections, categories: Sequence[int] | None, names: Mapping[int, str]
) -> list[PageCounting]:
    """Return how an untrained component counts, by default the categories with the highest scores."""
    if categories is None:
        best = {key: score for key, score in image.best_scores().items() if score > ABSENT_SCORE_ABOVE}
        categories = sorted(best, key=lambda key: -best[key])[:MAX_CATEGORIES]
    if not categories:
        raise InputError(f"image {image.image_id!r} must have a box that scores more than {ABSENT_SCORE_ABOVE}")
    untrained = (Counter if component == "counter" else PresenceCounter)(UNTRAINED_OBJECTS)
    countings = []
    for category_id in categories:
        detections = image.of_category(category_id)
        order = np.argsort(-detections.scores, kind="stable")[:UNTRAINED_BOXES]
        counting = count_with_component(detections.boxes[order], detections.scores[order], untrained)
        countings.append(page_counting(names.get(category_id, str(category_id)), counting))
    return countings


def canvas_size(image: Detections) -> tuple[int, int]:
    """Return the size of an image, or of the area that its boxes need where the size is unknown."""
    if image.image_size is not None or not len(image):
        return image.image_size or (640, 480)
    right, bottom = np.ceil(1.04 * image.boxes[:, 2:].max(0)).clip(1).tolist()
    return int(right), int(bottom)


def photo_url(photo: Photo) -> str:
    """Return a photo as a data URL: encoded anew at a page's size, so that no metadata travels along."""
    image = photo.image.copy()
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    file = BytesIO()
    image.save(file, "JPEG", quality=JPEG_QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def rounded(value: Any) -> Any:
    """Keep five significant digits of every number in nested lists and dicts: pages stay small."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _mean_head(heads: Sequence[HeadTrace]) -> HeadTrace:
    """Return the mean of presence heads; heads of the paper's component keep different boxes, so there the first."""
    if heads[0].component == "counter":
        return heads[0]
    quantities = ("calibrated", "presence", "suppression")
    mean = {name: np.mean([head.trace[name] for head in heads], axis=0).tolist() for name in quantities}
    return replace(heads[0], trace=mean)
