import json

import numpy as np
import pytest
import torch
from benchmarks.synthetic_photos import made_up_photos

from tallybox import Counter, CountEstimator, Detections, PresenceCounter
from tallybox.estimator import training
from tallybox.explain.counting import DEFAULT_THRESHOLDS, count_with_baselines, count_with_component
from tallybox.explain.page_data import estimator_counting
from tallybox.explain.scenes import cats
from tests.support.estimators import small_estimator

PHOTO = made_up_photos(16, seed=11)[0][3]
CATS = cats().boxes.numpy()


def test_the_paper_counts_three_cats_with_the_numbers_of_its_trace():
    counting = count_with_component(CATS, np.ones(4, np.float32), Counter(4))
    with torch.no_grad():
        trace = Counter(4).explain(torch.ones(4), cats().boxes).to_dict()
    assert counting.trace == trace
    assert counting.count == trace["count"] == pytest.approx(3)
    assert counting.merged_into == [0, 0, 2, 3]
    assert counting.baselines.sum == 4
    assert counting.baselines.nms_kept == [0, 2, 3]


def test_presence_counting_is_shown_with_the_numbers_of_its_trace():
    scores = np.array([0.9, 0.8, 0.7, 0.2], np.float32)
    component = PresenceCounter(5)
    counting = count_with_component(CATS, scores, component)
    with torch.no_grad():
        trace = component.explain(torch.from_numpy(scores), torch.from_numpy(CATS))
    assert counting.presence == trace.presence[0].tolist()
    assert counting.distribution == trace.distribution[0].tolist()
    assert counting.trace["suppression"] == trace.suppression[0].tolist()
    functions = counting.functions
    assert functions["phi"][32] == pytest.approx([0.5, 0.5])  # untrained, a score is its own presence
    assert functions["tau"][0][1] == 0
    assert functions["tau"][-1][1] == pytest.approx(1)


@pytest.mark.parametrize("component", ["presence", "counter"])
def test_an_estimate_is_shown_with_what_predict_and_explain_say(component, monkeypatch):
    if component == "presence":
        estimator = small_estimator()
    else:
        monkeypatch.setattr(training, "MIN_STEPS", 20)
        estimator = CountEstimator("counter", members=2).fit(*made_up_photos(20, seed=3))
    for category_id, explanation in estimator.explain(PHOTO).items():
        counting = json.loads(json.dumps(estimator_counting(estimator, PHOTO, category_id, explanation)))
        said = estimator.predict(PHOTO)[category_id]
        assert counting["count"] == said.count
        assert counting["distribution"] == said.probabilities.tolist()
        assert counting["presence"] == explanation.presence.tolist()
        assert len(counting["boxes"]) == len(counting["scores"]) == len(explanation.indices)
        config = estimator.fitted.config
        heads = [counting, *counting["other_heads"]]
        assert len(heads) == config.members
        for head in heads:
            rows = len(head["indices"])
            assert all(len(head["trace"][name]) == rows for name in ("attention", "boxes", "mask"))
            assert all(0 <= box < len(counting["boxes"]) for box in head["indices"])


def test_a_category_without_boxes_is_counted_and_told():
    estimator = small_estimator()
    nothing = Detections.empty(image_id=1)
    counting = estimator_counting(estimator, nothing, 18, estimator.explain(nothing, [18])[18])
    assert counting["boxes"] == counting["merged_into"] == []
    assert counting["count"] == 0
    assert counting["steps"][-1]["title"] == "The answer: 0"


@pytest.mark.parametrize("component", [Counter(3), PresenceCounter(3)], ids=["counter", "presence"])
def test_no_box_counts_as_nothing(component):
    empty = np.zeros((0, 4), np.float32), np.zeros(0, np.float32)
    counting = count_with_component(*empty, component)
    assert counting.count == pytest.approx(0, abs=1e-6)
    assert counting.steps[0].title == "Nothing to count"
    assert counting.baselines == count_with_baselines(*empty, DEFAULT_THRESHOLDS)
