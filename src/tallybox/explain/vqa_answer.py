"""The data of a report on a VQA answer: what the model attended to, how it counted that, and what it answered."""

from typing import Any

from tallybox.counter.module import Counter
from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.explain.counting import Counting, count_with_component
from tallybox.explain.page_data import PageCounting, page_counting, page_data
from tallybox.explain.steps import Step, number
from tallybox.explain.summaries import Summary, percent
from tallybox.photos.images import Photo
from tallybox.presence.module import PresenceCounter
from tallybox.vqa.answer import PhotoAnswer
from tallybox.vqa.question import quoted
from tallybox.vqa.regions import RegionFeatures


def answer_page(answer: PhotoAnswer, photo: Photo, counter: Counter | PresenceCounter) -> dict[str, Any]:
    """Return the data of the report on an answer; ``counter`` is the model's layer on its first attention map."""
    source = "asked about a photo, answered by a trained model of visual question answering"
    return page_data(answer.question, source, photo.size_wh, [answer_counting(answer, counter)], photo)


def answer_counting(answer: PhotoAnswer, counter: Counter | PresenceCounter) -> PageCounting:
    """Return how the first attention map was counted, with the answers."""
    counting = count_with_component(answer.regions.boxes_xyxy, answer.relevance.numpy(), counter)
    labels = region_labels(answer.regions)
    steps = [_question_step(answer), _attention_step(counting, labels), *counting.steps[1:], _answer_step(answer)]
    return page_counting(
        answer.question,
        counting,
        _summary(answer),
        labels=labels,
        answers=[[text, probability] for text, probability in answer.answers],
        steps=[vars(step) for step in steps],
    )


def _summary(answer: PhotoAnswer) -> Summary:
    runner_up = [f"{text} is {percent(probability)} probable" for text, probability in answer.others[:1]]
    unknown = _unknown_words(answer)
    warning = f"It does not know {unknown}: take that as a guess." if unknown else ""
    return Summary(answer.answer, "; ".join([f"{percent(answer.probability)} sure", *runner_up]), warning, [])


def _unknown_words(answer: PhotoAnswer) -> str:
    return ", ".join(quoted(word) for word in answer.unknown_words)


def region_labels(regions: RegionFeatures) -> list[str]:
    """Return the category that each region looks most like."""
    names = list(COCO_CATEGORIES.values())
    return [names[category] for category in regions.scores.argmax(1)]


def _question_step(answer: PhotoAnswer) -> Step:
    vocabulary = "Every word of it is known to the model."
    if unknown := _unknown_words(answer):
        vocabulary = f"The model never saw {unknown}. It answers from the other words: take that as a guess."
    return Step("The question is read", vocabulary)


def _attention_step(counting: Counting, labels: list[str]) -> Step:
    scores = counting.scores
    best = max(range(len(scores)), key=scores.__getitem__)
    return Step(
        f"Attention to {len(scores)} regions",
        f"With the question in mind, each region gets attention: most of all box {best + 1}, which "
        f"looks like “{labels[best]}”, {number(scores[best])}. Adding it all up would say {number(sum(scores))}: "
        "objects that were found twice would count twice, and faint regions add a little each.",
    )


def _answer_step(answer: PhotoAnswer) -> Step:
    runners_up = " or ".join(f"{text} ({100 * probability:.0f} %)" for text, probability in answer.others[:2])
    return Step(
        f"The answer: {answer.answer}",
        "A classifier sees the features of the count, all attended regions, and the question, and knows how "
        f"people answered similar questions. It says {answer.answer} ({100 * answer.probability:.0f} %)"
        + (f" rather than {runners_up}." if runners_up else "."),
    )
