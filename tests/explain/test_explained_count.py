import numpy as np
import pytest
import torch
from benchmarks.synthetic_photos import made_up_photos

from tallybox import Counter, CountEstimator, Detections, PresenceCounter
from tallybox.estimator.prediction import CountPrediction
from tallybox.explain.explained_count import BaselineCounts, explain_component, explain_estimate
from tallybox.explain.page_data import boxes_in_words, headline
from tallybox.explain.scenes import cats
from tests.support.estimators import small_estimator

PHOTO = made_up_photos(16, seed=11)[0][3]
CATS = cats().numpy()


def test_the_paper_counts_three_cats_with_the_numbers_of_its_trace():
    explained = explain_component(CATS, np.ones(4, np.float32), Counter(4))
    with torch.no_grad():
        trace = Counter(4).explain(torch.ones(4), cats()).to_dict()
    assert explained.trace == trace
    assert explained.count == trace["count"] == pytest.approx(3)
    assert explained.duplicate_of == [0, 0, 2, 3]
    assert explained.baselines.sum == 4
    assert explained.baselines.nms == 3
    assert boxes_in_words(explained.presence, explained.duplicate_of) == "Counted boxes: 3 clear."


def test_presence_explained_is_shown_with_the_numbers_of_its_trace():
    scores = np.array([0.9, 0.8, 0.7, 0.2], np.float32)
    component = PresenceCounter(5)
    explained = explain_component(CATS, scores, component)
    with torch.no_grad():
        trace = component.explain(torch.from_numpy(scores), torch.from_numpy(CATS))
    assert explained.presence == trace.presence[0].tolist()
    assert explained.distribution == trace.distribution[0].tolist()
    assert explained.trace["suppression"] == trace.suppression[0].tolist()
    functions = explained.functions
    assert functions["phi"][32] == pytest.approx([0.5, 0.5])  # untrained, a score is its own presence
    assert functions["tau"][0][1] == 0
    assert functions["tau"][-1][1] == pytest.approx(1)


def test_an_estimate_has_the_numbers_of_predict_and_explain():
    estimator = small_estimator()
    for category_id, explanation in estimator.explain(PHOTO).items():
        explained, heads = explain_estimate(estimator, PHOTO, category_id, explanation)
        said = estimator.predict(PHOTO)[category_id]
        assert (explained.count, explained.low, explained.high) == (said.count, said.low, said.high)
        assert explained.distribution == said.probabilities.tolist()
        assert sorted(explained.presence) == pytest.approx(sorted(explanation.presence.tolist()))
        assert len(heads) == estimator.fitted.config.members
        for head in heads:
            assert sorted(head.indices) == list(range(len(explained.boxes)))


def test_counted_boxes_come_first_and_keep_their_numbers():
    estimator = small_estimator()
    for category_id, explanation in estimator.explain(PHOTO).items():
        explained, heads = explain_estimate(estimator, PHOTO, category_id, explanation)
        counted = [box for box, into in enumerate(explained.duplicate_of) if into == box]
        assert counted == list(range(len(counted)))
        rows = np.argsort(heads[0].indices)
        assert np.array(heads[0].trace["boxes"])[rows] == pytest.approx(np.array(explained.boxes))
        given = PHOTO.of_category(category_id)
        explanation = estimator.explain(given, [category_id])[category_id]
        kept, _ = explain_estimate(estimator, given, category_id, explanation, first_boxes=len(given))
        assert kept.boxes == given.boxes.tolist()


def test_an_estimator_without_tuned_thresholds_has_no_baselines():
    estimator = CountEstimator.untrained({18: "dog"})
    image = Detections([[0, 0, 9, 9]], [0.9], [18])
    explained, _ = explain_estimate(estimator, image, 18, estimator.explain(image)[18])
    assert explained.baselines is None


def test_a_category_without_boxes_counts_0():
    estimator, nothing = small_estimator(), Detections.empty(image_id=1)
    explained, _ = explain_estimate(estimator, nothing, 18, estimator.explain(nothing, [18])[18])
    assert (explained.boxes, explained.duplicate_of, explained.count) == ([], [], 0)


@pytest.mark.parametrize("component", [Counter(3), PresenceCounter(3)], ids=["counter", "presence"])
def test_no_box_counts_as_nothing(component):
    empty = np.zeros((0, 4), np.float32), np.zeros(0, np.float32)
    explained = explain_component(*empty, component)
    assert explained.count == pytest.approx(0, abs=1e-6)
    assert explained.baselines == BaselineCounts(sum=0, nms=0, iou_threshold=0.5, score_threshold=0.5)


def test_a_headline_is_the_shortest_range_with_half_of_the_probability():
    probabilities = np.array([0, 0, 0.06, 0.06, 0.2, 0.23, 0.2, 0.1, 0.15])
    assert headline("car", CountPrediction(6, 5, 5.9, 3, 9, False, probabilities)) == "Probably 4 to 6 cars"
