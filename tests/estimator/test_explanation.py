import numpy as np
from benchmarks.synthetic_photos import made_up_photos

from tallybox import Detections
from tallybox.estimator.explanation import merge_boxes, merged_into
from tests.support.estimators import small_estimator


def three_objects_found_twice() -> Detections:
    boxes = [[150 * place + shift, 50, 150 * place + 90 + shift, 140] for place in range(3) for shift in (0, 4)]
    return Detections([*boxes, [30, 300, 90, 380]], [0.9, 0.6] * 3 + [0.02], [18] * 7, (640, 480))


def test_duplicates_go_with_the_box_that_was_counted_and_the_rest_is_left_over():
    explanation = small_estimator().explain(three_objects_found_twice())[18]
    assert explanation.prediction.count == 3
    merged = merged_into(explanation)
    by_box = {
        int(source): int(explanation.indices[j]) if j >= 0 else -1
        for source, j in zip(explanation.indices, merged, strict=True)
    }
    assert by_box == {0: 0, 1: 0, 2: 2, 3: 2, 4: 4, 5: 4, 6: -1}


def test_counted_boxes_are_merged_into_themselves_and_are_no_more_than_the_count():
    estimator = small_estimator()
    for photo in made_up_photos(12, seed=5)[0]:
        for explanation in estimator.explain(photo).values():
            merged = merged_into(explanation)
            counted = np.flatnonzero(merged == np.arange(len(merged)))
            assert len(counted) <= explanation.prediction.count
            assert set(merged[merged >= 0].tolist()) == set(counted.tolist())


def test_nothing_is_counted_where_the_count_is_0():
    explanation = small_estimator().explain(Detections.empty(), [18])[18]
    assert merged_into(explanation).shape == (0,)


def test_a_count_beyond_what_the_boxes_show_points_at_no_faint_box():
    merged = merge_boxes(np.array([0.9, 0.05, 0.6], np.float32), np.zeros((3, 3)), count=5)
    assert merged.tolist() == [0, -1, 2]
