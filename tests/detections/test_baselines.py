import json
from dataclasses import asdict

import numpy as np
import pytest
import supervision
from hypothesis import given
from hypothesis import strategies as st

from tallybox import Detections
from tallybox.detections import baselines
from tallybox.detections.baselines import ThresholdCounter, Thresholds, count_with, tabulate, tune
from tallybox.detections.labels import Pairs
from tallybox.detections.metrics import count_metrics
from tests.support.detection_sets import CATEGORY_IDS, detections
from tests.support.tolerances import SUMMED_SCORES

pair_lists = st.lists(st.tuples(detections(), st.sampled_from(CATEGORY_IDS), st.integers(0, 4)), min_size=1, max_size=6)
metrics = st.sampled_from(["exact", "mae", "rmse"])


def labelled(rows):
    """Images, their pairs, and the true counts, from rows of an image, a category and a count."""
    images, category_ids, true_counts = zip(*rows, strict=True)
    return images, Pairs(np.arange(len(images)), np.array(category_ids)), np.array(true_counts)


def tuned(images, pairs, truth, *options, **more):
    return tune(tabulate(images, pairs), pairs, truth, *options, **more)


def test_boxes_left_by_nms_count_where_their_score_is_high_enough():
    near, far = [0, 0, 10, 10], [50, 50, 60, 60]
    image = Detections([near, [0, 0, 10, 9], far, far], [0.9, 0.8, 0.6, 0.1], [18] * 4)
    assert count_with(image, [0.5, 0.95], [0.05, 0.7]).tolist() == [[2, 1], [3, 2]]


@given(pair_lists, metrics)
def test_nothing_in_the_grid_is_better_than_what_was_chosen(pairs, metric):
    *images_and_pairs, truth = labelled(pairs)
    chosen = tuned(*images_and_pairs, truth, metric)
    overlaps = baselines.IOU_THRESHOLDS

    def loss(counter: ThresholdCounter) -> float:
        figure = count_metrics(counter.counts(*images_and_pairs), truth)[metric]
        return -figure if metric == "exact" else figure

    grid = [ThresholdCounter(metric, Thresholds(o, s)) for o in overlaps for s in (0.05, 0.5, 0.95)]
    assert loss(chosen) <= min(loss(other) for other in grid) + SUMMED_SCORES.atol
    assert loss(tuned(*images_and_pairs, truth, metric, per_category=True)) <= loss(chosen) + SUMMED_SCORES.atol


@given(pair_lists, metrics)
def test_thresholds_of_a_category_are_as_if_it_were_alone_up_to_equally_good_ones(pairs, metric):
    counter = tuned(*labelled(pairs), metric, per_category=True)
    for category_id in counter.by_category:
        *of_category, truth = labelled([pair for pair in pairs if pair[1] == category_id])
        alone = tuned(*of_category, truth, metric)
        assert count_metrics(counter.counts(*of_category), truth)[metric] == pytest.approx(
            count_metrics(alone.counts(*of_category), truth)[metric], rel=SUMMED_SCORES.rtol
        )


def test_a_category_without_labels_is_counted_with_the_thresholds_for_all():
    image = Detections([[0, 0, 9, 9]], [0.3], [44], image_id=1)
    counter = ThresholdCounter("exact", Thresholds(0.5, 0.2), {18: Thresholds(0.5, 0.9)})
    assert counter.count(image, 44) == 1
    assert ThresholdCounter("exact", Thresholds(0.5, 0.2), {44: Thresholds(0.5, 0.9)}).count(image, 44) == 0


def test_of_equally_good_thresholds_the_lower_ones_are_taken():
    image = Detections([[0, 0, 9, 9], [0, 0, 9, 8], [20, 0, 29, 9]], [0.9, 0.6, 0.4], [18, 18, 18], image_id=7)
    assert tuned(*labelled([(image, 18, 2)])).overall == Thresholds(overlap=0.3, score=0.05)
    assert ThresholdCounter("exact", Thresholds(0.5, 0.25)).count(image, 18) == 2.0


def test_equally_good_thresholds_of_a_category_are_decided_by_all():
    many = Detections([[i * 20, 0, i * 20 + 9, 9] for i in range(4)], [0.9, 0.6, 0.4, 0.2], [1] * 4)
    rare = Detections([[0, 0, 9, 9]], [0.95], [18])
    pairs = labelled([(many, 1, 2), (many, 1, 2), (rare, 18, 1)])
    counter = tuned(*pairs, per_category=True)
    assert counter.by_category[18] == counter.overall
    assert 0.4 < counter.overall.score <= 0.6


@given(detections(), st.sampled_from(CATEGORY_IDS))
def test_counts_are_those_of_supervision(image, category_id):
    counter = ThresholdCounter("exact", Thresholds(0.37, 0.25))
    theirs = supervision.Detections(image.boxes, confidence=image.scores, class_id=image.category_ids)
    has_area = (image.boxes[:, 2:] > image.boxes[:, :2]).all(1)  # of others, supervision's overlap is not a number
    theirs = theirs[has_area & (image.scores >= 0.25) & (image.category_ids == category_id)].with_nms(0.37)
    with_area = Detections(image.boxes[has_area], image.scores[has_area], image.category_ids[has_area])
    distinct = len(set(with_area.scores.tolist())) == len(with_area)  # equal scores may be taken in any order
    assert not distinct or counter.count(with_area, category_id) == len(theirs)


@given(pair_lists, st.booleans())
def test_a_baseline_survives_json(pairs, per_category):
    counter = tuned(*labelled(pairs), "mae", per_category=per_category)
    assert ThresholdCounter.from_dict(json.loads(json.dumps(asdict(counter)))) == counter
