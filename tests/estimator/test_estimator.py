import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from benchmarks.synthetic_photos import made_up_photos

from tallybox import CountEstimator, Detections, TallyboxError
from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.errors import InputError, InputTypeError
from tallybox.estimator.evaluation import evaluate
from tests.support.estimators import small_estimator


@pytest.fixture(scope="module")
def estimator() -> CountEstimator:
    return small_estimator()


@pytest.fixture(scope="module")
def unseen():
    return made_up_photos(60, seed=9)


def test_it_counts_unseen_photos_better_than_the_nms_it_stores(estimator, unseen):
    figures = evaluate(estimator, *unseen)
    assert figures["estimator"]["exact"] > figures["nms"]["exact"] - 0.02
    assert figures["estimator"]["mae"] < 1
    assert figures["coverage90"] > 0.75


def test_a_prediction_is_a_distribution_with_its_numbers(estimator, unseen):
    for predictions in estimator.predict_many(unseen[0][:10]):
        for prediction in predictions.values():
            assert prediction.probabilities.sum() == pytest.approx(1)
            assert prediction.low <= prediction.count <= prediction.high
            assert prediction.most_probable == prediction.probabilities.argmax() or prediction.most_probable >= 6
            assert prediction.saturated or prediction.probabilities[: prediction.count].sum() < 0.5
            assert prediction.saturated or prediction.probabilities[: prediction.count + 1].sum() >= 0.5 - 1e-9


def test_one_image_or_many_give_the_same(estimator, unseen):
    photos = unseen[0][:5]
    many = estimator.predict_many(photos)
    for photo, together in zip(photos, many, strict=True):
        alone = estimator.predict(photo)
        assert list(alone) == list(together)
        for category, prediction in alone.items():
            np.testing.assert_allclose(prediction.probabilities, together[category].probabilities, atol=1e-5)
    assert estimator.predict_many([]) == []


def test_listed_are_the_categories_that_are_there_with_a_probability_of_more_than_a_tenth(estimator, unseen):
    for photo in unseen[0][:10]:
        every = estimator.predict(photo, sorted(photo.best_scores()))
        listed = estimator.predict(photo)
        assert list(listed) == [key for key, prediction in every.items() if prediction.probability_of_any > 0.1]
        assert {prediction.count for key, prediction in every.items() if key not in listed} <= {0}


def test_one_image_and_several_have_methods_of_their_own(estimator, unseen):
    with pytest.raises(InputTypeError, match="list"):
        estimator.predict(unseen[0][:2])
    with pytest.raises(InputTypeError, match="call predict"):
        estimator.predict_many(unseen[0][0])


def test_an_untrained_estimator_takes_scores_for_probabilities_and_marks_its_counts():
    untrained = CountEstimator.untrained({7: "apple"})
    boxes = [[0, 0, 10, 10], [0, 0, 10, 10], [50, 0, 60, 10], [90, 0, 99, 10]]
    image = Detections(boxes, [0.99, 0.98, 0.97, 0.04], [7] * 4)
    apples = untrained.predict(image)["apple"]
    assert (apples.count, apples.calibrated, apples.to_dict()["calibrated"]) == (2, False, False)
    assert apples.expected == pytest.approx(2, abs=0.1)
    assert not untrained.is_calibrated
    assert untrained.predict(Detections.empty()) == {}
    with pytest.raises(TallyboxError, match="fit"):
        untrained.save("nowhere")


def test_predictions_and_estimators_can_be_pickled():
    untrained = CountEstimator.untrained(COCO_CATEGORIES)  # a mapping that cannot
    predictions = untrained.predict(Detections([[0, 0, 9, 9]], [0.9], [18]))
    again = pickle.loads(pickle.dumps(predictions))
    assert again["dog"].to_dict() == predictions["dog"].to_dict()
    assert pickle.loads(pickle.dumps(untrained)).category_name(18) == "dog"


def test_an_image_without_detections_counts_0_with_its_interval(estimator):
    assert estimator.predict(Detections.empty()) == {}
    (said,) = estimator.predict(Detections.empty(), ["dog"]).values()
    assert (said.count, said.low) == (0, 0)
    assert said.expected < 0.5
    assert estimator.predict_many([Detections.empty(), Detections.empty()], [18])[1][18].count == 0


def test_a_category_is_named_by_name_or_id(estimator, unseen):
    photo = unseen[0][0]
    by_name, by_id = estimator.predict(photo, ["dog"]), estimator.predict(photo, [18])
    assert list(by_name) == list(by_id) == [18]
    assert by_name["dog"] is by_name[18]
    assert list(by_name.by_name()) == ["dog"]
    with pytest.raises(InputError, match="cat"):
        by_name["cat"]  # it was not asked for, so nothing is known about it
    assert "cat" not in by_name
    assert by_name.get("unicorn") is None
    with pytest.raises(InputTypeError, match="must be a list of names or ids, but got the text 'dog'"):
        estimator.predict(photo, "dog")
    with pytest.raises(InputError, match="'dog'"):
        estimator.predict(photo, ["dogg"])


def test_a_known_category_that_is_not_listed_counts_0_and_an_unknown_one_is_an_error(estimator):
    predictions = estimator.predict(
        Detections([[0, 0, 90, 90], [2, 1, 91, 90], [300, 300, 400, 400]], [0.9, 0.7, 0.9], [18] * 3)
    )
    for counts in (predictions, predictions.by_name(), pickle.loads(pickle.dumps(predictions.by_name()))):
        assert (counts["cat"].count, counts["cat"].high, "cat" in counts) == (0, 0, False)
        assert counts["dog"].count >= 1
        assert counts.get("cat") is None
        with pytest.raises(InputError, match="'dog'"):
            counts["dogg"]


def test_a_prediction_says_that_a_limit_was_reached(estimator):
    config = estimator.fitted.config
    places = np.arange(config.proposals + 1) * 30.0
    boxes = np.column_stack((places, places * 0, places + 20, places * 0 + 20))
    faint, clear = (Detections(boxes, np.full(len(boxes), score), [18] * len(boxes)) for score in (0.05, 0.3))
    assert not estimator.predict(faint, ["dog"])["dog"].saturated
    said = estimator.predict(clear, ["dog"])["dog"]
    assert said.saturated
    assert said.to_dict()["saturated"] is True
    fewer = estimator.predict(Detections(boxes[:2], [0.9, 0.9], [18] * 2), ["dog"])["dog"]
    assert not fewer.saturated
    assert "saturated" not in fewer.to_dict()


def test_the_same_seed_learns_the_same_and_touches_no_other_random_numbers():
    photos, labels = made_up_photos(16, seed=4)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = CountEstimator(members=2, seed=1).fit(photos, labels)
    assert torch.equal(torch.rand(3), expected)
    second = CountEstimator(members=2, seed=1).fit(photos, labels)
    other = CountEstimator(members=2, seed=2).fit(photos, labels)
    weights = [torch.cat([p.flatten() for p in e.fitted.ensemble.parameters()]) for e in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_an_explanation_names_the_boxes_that_count(estimator):
    boxes = [[0, 0, 100, 100], [2, 1, 101, 99], [300, 300, 400, 400], [500, 10, 520, 30]]
    image = Detections(boxes, [0.9, 0.7, 0.85, 0.02], [18] * 4, (640, 480))
    (explained,) = estimator.explain(image).values()
    assert explained.indices.tolist() == [0, 2, 1, 3]
    presence = dict(zip(explained.indices.tolist(), explained.presence.tolist(), strict=True))
    assert presence[0] > presence[1]
    assert presence[2] > presence[3]
    assert explained.prediction.to_dict() == estimator.predict(image)[18].to_dict()
    assert len(explained.traces) == 2
    assert explained.traces[0].presence.shape[-1] == 4


def test_counts_beyond_the_largest_say_so():
    boxes = [[30 * i, 0, 30 * i + 20, 20] for i in range(15)]
    photos = [
        Detections(boxes[:n], [0.95] * n, [18] * n, image_id=i) for i, n in enumerate([1, 2, 3, 12, 13, 14, 15] * 4)
    ]
    counts = {(photo.image_id, 18): len(photo) for photo in photos}
    estimator = CountEstimator(members=2, max_objects=5).fit(photos, counts)
    said = estimator.predict(photos[6])[18]
    assert said.saturated
    assert said.count > 8
    assert not estimator.predict(photos[0])[18].saturated


def test_mistakes_are_said(unseen):
    photos, labels = unseen
    with pytest.raises(TallyboxError, match="fit"):
        CountEstimator().predict(photos[0])
    with pytest.raises(InputError, match="4 labelled images"):
        CountEstimator().fit(photos[:2], labels.only(sorted(labels.counts)[:2]))
    with pytest.raises(InputError, match="members must be at least 2"):
        CountEstimator(members=1)


def test_a_prediction_depends_on_no_other_import_and_changes_no_thread_setting(tmp_path):
    small_estimator().save(tmp_path / "small.estimator")
    script = """
import sys, threading, torch
from tallybox import CountEstimator, Detections
estimator, photo = CountEstimator.load(sys.argv[1]), Detections([[0, 0, 9, 9], [1, 0, 9, 9]], [0.9, 0.4], [18, 18])
torch.set_num_threads(2)
seen = []
def images():
    yield photo
    started = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    started.start(), started.join()
before = [each[18].probabilities.tolist() for each in estimator.predict_many(images(), [18])]
import numba
after = [each[18].probabilities.tolist() for each in estimator.predict_many(images(), [18])]
assert before == after and seen == [2, 2] and torch.get_num_threads() == 2, (before, after, seen)
"""
    subprocess.run([sys.executable, "-c", script, tmp_path / "small.estimator"], check=True)
