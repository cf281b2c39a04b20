from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.synthetic_photos import made_up_photos

from tallybox import CountEstimator, Detections
from tallybox.detections.labels import counting_pairs
from tallybox.errors import InputError
from tallybox.estimator.fitting import fit
from tallybox.estimator.inference import infer
from tallybox.estimator.inputs import KEEP_ALL, EstimatorConfig, category_rows, model_inputs
from tallybox.estimator.training import PADDING, LabelledInputs, train


def fitted(proposals: int, max_objects: int = 0):
    config = EstimatorConfig(max_objects=max_objects, members=2, proposals=proposals)
    return fit(*made_up_photos(12, seed=2), config, seed=0, on_progress=lambda done, total: None)


def test_nms_of_the_inputs_is_used_only_if_boxes_do_not_all_fit():
    assert fitted(48).config.nms_iou == KEEP_ALL
    assert fitted(6, max_objects=3).config.nms_iou < KEEP_ALL


def test_labels_decide_the_largest_count_within_bounds():
    assert fitted(48).config.max_objects == 10
    assert fitted(48, max_objects=4).config.max_objects == 4


def test_cross_validation_tells_how_good_nms_the_ensemble_and_their_mixture_are():
    figures = fitted(48).cross_validation
    assert (figures["images"], 0 <= figures["nms_share"] <= 1) == (12, True)
    exact = {name: figures[name]["exact"] for name in ("estimator", "nms", "ensemble")}
    assert exact["estimator"] >= min(exact["nms"], exact["ensemble"])
    assert all(0 < figures[name]["coverage90"] <= 1 for name in exact)


def test_categories_without_labels_share_one_row():
    assert category_rows((2, 5, 9), np.array([5, 1, 9, 10, 2])).tolist() == [2, 0, 3, 0, 1]


@pytest.mark.parametrize("count", [0, 1])
def test_boxes_of_no_labelled_category_are_refused(count):
    photos = [Detections([[0, 0, 9, 9]], [0.9], [16], image_id=number) for number in range(8)]
    with pytest.raises(InputError, match=r"car, dog.*bird"):
        CountEstimator().fit(photos, {(number, category): count for number in range(8) for category in (3, 18)})


def labelled_inputs() -> LabelledInputs:
    photos, labels = made_up_photos(8, seed=2)
    pairs, truth = counting_pairs(photos, labels)
    config = EstimatorConfig(max_objects=20, members=2, proposals=16)
    inputs = model_inputs(photos, pairs, config, ())
    return LabelledInputs(config, 1, pairs, inputs, torch.from_numpy(truth), torch.arange(len(truth)) % 2)


def test_a_member_does_not_learn_from_the_part_that_it_leaves_out():
    labelled = labelled_inputs()
    other_counts = torch.where(labelled.parts == 0, labelled.true_counts + 3, labelled.true_counts)
    members = [
        train(given, seed=0, epochs=3).from_component.weight
        for given in (labelled, replace(labelled, true_counts=other_counts))
    ]
    torch.testing.assert_close(members[0][0], members[1][0], rtol=0, atol=1e-6)
    assert not torch.allclose(members[0][1], members[1][1], atol=1e-3)


def test_members_of_a_batch_are_those_computed_alone():
    labelled = labelled_inputs()
    ensemble = train(labelled, seed=0, epochs=3)
    together = infer(ensemble, labelled.inputs)
    rows = labelled.by_part()
    own = infer(ensemble, labelled.inputs, rows.clamp(min=0))
    for member in range(2):
        real = rows[member] != PADDING
        expected = together.logits[member, rows[member, real]]
        torch.testing.assert_close(own.logits[member, real], expected, rtol=1e-4, atol=1e-4)
