import numpy as np
import pytest
import torch
from benchmarks.synthetic_photos import made_up_photos

from tallybox import CountEstimator, Detections
from tallybox.detections.labels import counting_pairs
from tallybox.errors import InputError
from tallybox.estimator import training
from tallybox.estimator.config import NO_THINNING, EstimatorConfig
from tallybox.estimator.fitting import THINNINGS, fit
from tallybox.estimator.inputs import category_rows, indexed_pairs, model_inputs


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(training, "MIN_STEPS", 10)


def fitted(proposals: int, max_objects: int | None = None):
    config = EstimatorConfig(members=2, proposals=proposals)
    photos, labels = made_up_photos(12, seed=2)
    return fit(photos, labels, config, max_objects=max_objects, seed=0, on_progress=lambda done, total: None)


def test_thinning_is_tried_only_where_boxes_do_not_all_fit(monkeypatch):
    assert fitted(48)[0].config.thinning == NO_THINNING
    monkeypatch.setattr("tallybox.estimator.fitting.THINNINGS", (0.7,))
    assert fitted(6, max_objects=3)[0].config.thinning == 0.7
    assert 0.7 in THINNINGS


def test_labels_decide_the_largest_count_within_bounds():
    assert fitted(48)[0].config.max_objects == 10
    assert fitted(48, max_objects=4)[0].config.max_objects == 4


def test_each_pair_is_predicted_by_a_member_that_did_not_learn_from_its_photo():
    report = fitted(48)[1]
    assert report.photos == 12
    assert len(report.true_counts) == report.pairs == len(report.held_out.counts)
    np.testing.assert_allclose(report.held_out.probabilities.sum(1), 1)


def test_categories_without_labels_share_one_row():
    assert category_rows((2, 5, 9), np.array([5, 1, 9, 10, 2])).tolist() == [2, 0, 3, 0, 1]


def test_what_could_not_be_loaded_again_is_refused_before_learning(monkeypatch):
    monkeypatch.setattr("tallybox.estimator.fitting.tabulate", lambda pairs: pytest.fail("it began"))
    photos = [Detections([[0, 0, 9, 9]], [0.9], [number], image_id=number) for number in range(4500)]
    with pytest.raises(InputError, match="the number of labelled categories must be at most 4096, but got 4500"):
        CountEstimator().fit(photos, {(number, number): 1 for number in range(4500)})


def test_boxes_of_no_labelled_category_are_refused_before_learning():
    photos = [Detections([[0, 0, 9, 9]], [0.9], [16], image_id=number) for number in range(8)]
    expected = r"the labels name \(car, dog\), but got only others \(bird\); class numbers of a YOLO model\?"
    for count in (0, 1):
        with pytest.raises(InputError, match=expected):
            CountEstimator().fit(photos, {(number, category): count for number in range(8) for category in (3, 18)})


def trained(monkeypatch, too_few_below: int):
    losses = iter([3.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    seen = []

    def loss(model, labelled, rows):
        seen.append(model.from_component.weight.clone())
        return next(losses)

    monkeypatch.setattr(training, "held_out_loss", loss)
    monkeypatch.setattr(training, "MIN_PAIRS_TO_STOP_EARLY", too_few_below)
    photos, labels = made_up_photos(8, seed=2)
    pairs = list(counting_pairs(photos, labels))
    config, indexed = EstimatorConfig(members=2, proposals=16), indexed_pairs(photos, pairs)
    inputs, truth = model_inputs(photos, indexed, config, ()), torch.tensor([pair.true_count for pair in pairs])
    labelled = training.LabelledInputs(config, 1, indexed, inputs, truth, torch.arange(len(truth)) % 2)
    model = training.train_member(labelled, 0, seed=0, epochs=8)
    return model, seen


def test_learning_stops_by_itself_and_keeps_the_best(monkeypatch):
    model, seen = trained(monkeypatch, too_few_below=0)
    assert len(seen) == 6  # in the second half, a quarter of the epochs without a better one is enough
    assert torch.equal(model.from_component.weight, seen[1])


def test_too_few_pairs_do_not_stop_the_learning(monkeypatch):
    model, seen = trained(monkeypatch, too_few_below=1000)
    assert len(seen) == 8
    assert torch.equal(model.from_component.weight, seen[-1])
