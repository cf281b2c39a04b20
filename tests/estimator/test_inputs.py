import numpy as np
import pytest
import torch
from benchmarks.synthetic_photos import made_up_photos

from tallybox import Detections
from tallybox.boxes import nms
from tallybox.detections.labels import Pairs
from tallybox.estimator.inputs import GRID_OVERLAPS, GRID_SCORES, SUMMARY, EstimatorConfig, model_inputs, rival_scores


def inputs_of(images, pairs, proposals=48, nms_iou=1.0):
    indexed = Pairs(*(np.array(column, np.int64) for column in zip(*pairs, strict=True)))
    return model_inputs(images, indexed, EstimatorConfig(proposals=proposals, nms_iou=nms_iou), ())


@pytest.fixture(scope="module")
def photos() -> list[Detections]:
    return made_up_photos(12)[0]


def every_pair(photos):
    return [(index, category) for index, photo in enumerate(photos) for category in photo.best_scores()]


def test_a_pair_holds_the_boxes_of_its_category_best_first(photos):
    pairs = every_pair(photos)
    inputs = inputs_of(photos, pairs)
    for row, (index, category) in enumerate(pairs):
        detections = photos[index].of_category(category)
        order = np.argsort(-detections.scores, kind="stable")
        size = int(inputs.sizes[row])
        assert size == len(detections)
        np.testing.assert_array_equal(inputs.scores[row, :size], detections.scores[order])
        np.testing.assert_array_equal(inputs.boxes[row, :size], detections.boxes[order])
        np.testing.assert_array_equal(photos[index].boxes[inputs.sources[row, :size].numpy()], detections.boxes[order])
        assert not inputs.mask[row, size:].any()
        assert (inputs.scores[row, size:] == 0).all()


def test_the_summary_begins_with_what_nms_counts(photos):
    pairs = every_pair(photos)
    inputs = inputs_of(photos, pairs)
    for row, (index, category) in enumerate(pairs):
        detections = photos[index].of_category(category)
        kept = nms(detections.boxes, detections.scores, GRID_OVERLAPS)
        expected = [(keep & (detections.scores >= np.float32(s))).sum() for keep in kept for s in GRID_SCORES]
        counts = inputs.summary[row, : len(expected)].double().expm1()
        np.testing.assert_allclose(counts, expected, atol=1e-4)


def test_inputs_do_not_depend_on_what_else_is_inputs_of(photos):
    pairs = every_pair(photos)
    together = inputs_of(photos, pairs)
    for row, (index, category) in enumerate(pairs):
        alone = inputs_of([photos[index]], [(0, category)])
        torch.testing.assert_close(together.at(torch.tensor([row])).context, alone.context)
        torch.testing.assert_close(together.summary[row], alone.summary[0])


def test_nothing_detected_is_a_pair_too(photos):
    inputs = inputs_of([Detections.empty(), photos[0]], [(0, 18), (1, 999)])
    assert inputs.sizes.tolist() == [0, 0]
    assert inputs.summary.shape == (2, SUMMARY)
    assert inputs.summary.isfinite().all()
    assert inputs_of([Detections.empty()], [(0, 18)]).sizes.tolist() == [0]


def test_the_summary_has_what_other_categories_show(photos):
    pairs = [*every_pair(photos), (0, 999)]
    surroundings = inputs_of(photos, pairs).summary[:, -5:-2]
    for row, (index, category) in enumerate(pairs):
        other_scores = photos[index].scores[photos[index].category_ids != category]
        best = np.clip(other_scores.max(initial=0), 1e-3, 1 - 1e-3)
        likely = [np.log1p((other_scores > score).sum()) for score in (0.2, 0.5)]
        expected = [*likely, np.log(best / (1 - best))]
        np.testing.assert_allclose(surroundings[row], expected, rtol=1e-4, atol=1e-5)


def test_only_the_best_take_part():
    boxes = np.array([[10 * i, 0, 10 * i + 9, 9] for i in range(20)], np.float32)
    image = Detections(boxes, np.linspace(0.1, 0.9, 20), [18] * 20)
    inputs = inputs_of([image], [(0, 18)], proposals=5)
    assert inputs.sources[0].tolist() == [19, 18, 17, 16, 15]


def test_nms_lets_other_objects_take_part():
    crowd, apart = [[0, 0, 100, 100]] * 30, [[200, 0, 300, 100]]
    image = Detections(crowd + apart, [0.9] * 30 + [0.2], [18] * 31)
    crowded = inputs_of([image], [(0, 18)], proposals=4)
    thinned = inputs_of([image], [(0, 18)], proposals=4, nms_iou=0.9)
    assert 30 not in crowded.sources[0].tolist()
    assert thinned.sources[0][thinned.mask[0]].tolist() == [0, 30]


def test_rivals_are_boxes_of_other_categories_that_overlap():
    image = Detections([[0, 0, 9, 9], [0, 0, 9, 9], [0, 0, 9, 9], [50, 50, 59, 59]], [0.9, 0.4, 0.8, 0.7], [1, 2, 1, 3])
    np.testing.assert_allclose(rival_scores(image), [0.4, 0.9, 0.4, 0])
