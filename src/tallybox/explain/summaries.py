"""What a report says first, for people: how many, how sure, which boxes, and why; the mathematics is in the steps."""

from dataclasses import dataclass

from tallybox.detections.categories import plural
from tallybox.estimator.prediction import CountPrediction
from tallybox.explain.counting import Counting
from tallybox.explain.steps import joined, number

SAME_IN_PLURAL = ("skis", "scissors")
# Another count is "almost as likely" from this share of the answer's probability on, and named from the second on.
ALMOST, NAMED = 0.75, 0.25


@dataclass(frozen=True)
class Summary:
    """A count in plain sentences."""

    headline: str  # "2 people"
    certainty: str  # "37 % sure; 3 is almost as likely"
    interval: str  # a sentence, or empty
    reasons: list[str]  # which boxes were counted, and why


def quantity(count: float, name: str) -> str:
    """Return a number of things in words.

    >>> quantity(2, "person"), quantity(1, "bus"), quantity(0, "truck"), quantity(2.97, "cat"), quantity(2, "17")
    ('2 people', '1 bus', 'no trucks', '2.97 cats', '2 of category 17')
    """
    written = number(count) if count else "no"
    if not name[-1:].isalpha():
        return f"{written} of category {name}"
    return f"{written} {name if count == 1 or name in SAME_IN_PLURAL else plural(name)}"


def predicted_summary(name: str, predicted: CountPrediction, counting: Counting) -> Summary:
    """Summarise what an estimator predicts."""
    low, high = predicted.low, predicted.high
    within = f"exactly {low}" if low == high else f"{low} to {high}"
    interval = f"In nine of ten such photos the true number is {within}."
    if not predicted.calibrated:
        interval = "Nothing was learned for this detector: take the numbers as a guess."
    headline = ("about " if predicted.at_least else "") + quantity(predicted.count, name)
    reasons = [*_box_reasons(name, counting), *_sum_reasons(predicted.count, counting)]
    return Summary(headline, _certainty(predicted), interval, reasons)


def component_summary(name: str, counting: Counting) -> Summary:
    """Summarise what one component counts alone."""
    kind = "the paper's component" if counting.component == "counter" else "presence counting"
    sure = "" if counting.confidence is None else f"; its confidence is {number(counting.confidence)}"
    return Summary(quantity(counting.count, name), f"by {kind} alone{sure}", "", _box_reasons(name, counting))


def percent(share: float) -> str:
    """Write a share in percent.

    >>> percent(0.374), percent(0.999), percent(0.001)
    ('37 %', 'more than 99 %', 'less than 1 %')
    """
    if share > 0.99:
        return "more than 99 %"
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def _certainty(predicted: CountPrediction) -> str:
    shares, last = predicted.probabilities, len(predicted.probabilities) - 1
    answer = min(predicted.count, last)
    share = float(shares[answer])
    if answer == last:
        return f"{percent(share)} sure that it is {last} or more; larger numbers are not told apart"
    sure = f"{percent(share)} sure"
    other = max((count for count in range(last + 1) if count != answer), key=lambda count: float(shares[count]))
    rival, written = float(shares[other]), f"{other} or more" if other == last else str(other)
    if rival > share:
        return f"{sure}; {written} is likelier ({percent(rival)}), but {answer} is the middle of what is probable"
    if rival >= ALMOST * share:
        return f"{sure}; {written} is almost as likely"
    return f"{sure}; {written} is less likely ({percent(rival)})" if rival >= NAMED * share else sure


def _box_reasons(name: str, counting: Counting) -> list[str]:
    """Say which boxes are counted, which show the same objects again, and how many are left out."""
    merged = counting.merged_into
    if not merged:
        return [f"The detector found no box that could show a {name}."]
    boxes = "one box" if len(merged) == 1 else f"{len(merged)} boxes"
    counted = [box + 1 for box, into in enumerate(merged) if into == box]
    again = sum(into not in (-1, box) for box, into in enumerate(merged))
    faint = len(merged) - len(counted) - again
    if counted:
        which = f"box {counted[0]} is" if len(counted) == 1 else f"boxes {joined(counted)} are"
        reasons = [f"Of {boxes} that could show {_article(name)}, {which} counted."]
    else:
        reasons = [f"{boxes.capitalize()} could show {_article(name)}, but none is sure enough to be counted."]
    if again == 1:
        reasons.append("One box shows an object that another box shows better, and is merged into it.")
    elif again:
        reasons.append(f"{again} boxes show objects that another box shows better, and are merged into it.")
    if faint:
        reasons.append("One box is too faint to count." if faint == 1 else f"{faint} boxes are too faint to count.")
    return reasons


def _sum_reasons(count: int, counting: Counting) -> list[str]:
    """Say why the boxes, or their presences, do not add up to the answer, where they do not."""
    counted = sum(into == box for box, into in enumerate(counting.merged_into))
    total = sum(counting.presence)
    reasons = []
    if counted < count:
        because = "labelled photos like this one held more than the boxes that stand out"
        reasons.append(f"That is fewer than {count}: {because}.")
    if int(total + 0.5) != count:
        because = "in labelled photos like this one there was more than the boxes show"
        if total > count:
            because = "faint boxes add a little each, and in labelled photos like this one they were seldom objects"
        reasons.append(f"The presences of all boxes add up to {number(total)}, the answer is {count}: {because}.")
    return reasons


def _article(name: str) -> str:
    if name in SAME_IN_PLURAL:
        return name
    return f"an {name}" if name[:1].lower() in tuple("aeiou") else f"a {name}"
