import numpy as np
import pytest
from benchmarks.synthetic_photos import made_up_photos

from tallybox import CountEstimator
from tallybox.concurrency import in_batches
from tallybox.detections.labels import Pairs, counting_pairs, labelled_detections
from tallybox.detections.readers import read_counts, read_detections
from tallybox.estimator.inference import infer_pairs
from tallybox.estimator.totals import joint_moments, learn_totals, total_intervals
from tallybox.photos.shipped import shipped_estimator
from tests.support.estimators import small_estimator
from tests.support.predictions import total_of
from tests.support.shared_data import data_folder

PHOTOS, LABELS = made_up_photos(60, seed=8)


def test_variances_of_images_and_of_members_add_up():
    sums = np.array([[10.0, 4.0, 6.0, 9.0, 11.0]])  # mean, variance, pairs, two members
    mean, variance = joint_moments(sums, images=8, undetected=0.5, factors=np.array([2.0]))
    assert mean == pytest.approx([2 * (10 + 2 * 0.5)])
    assert variance == pytest.approx([4 * (4 + 2 * 0.5 + (2 - 1) * 1.0)])


@pytest.mark.parametrize("mean", [0.3, 2.0, 12.0, 150.0])
def test_intervals_are_those_of_a_sum(mean):
    lows, highs = total_intervals(np.array([mean]), np.array([mean]), 1.0)
    drawn = np.random.default_rng(0).poisson(mean, 20_000)
    assert 0.88 <= ((lows <= drawn) & (drawn <= highs)).mean() <= (0.94 if mean >= 10 else 1)
    assert lows[0] <= mean <= highs[0] + 1


def test_held_out_totals_widen_intervals_that_are_too_narrow():
    random = np.random.default_rng(0)
    images, variance = 400, 4.0  # what the estimator takes for it is a quarter
    truth = random.poisson(10, images) + random.normal(0, np.sqrt(30), images).round().astype(int)
    moments = np.column_stack(
        [np.full(images, 10.0), np.full(images, variance), np.ones(images), *[np.full(images, 10.0)] * 2]
    )
    pairs = Pairs(np.arange(images), np.ones(images, np.int64))
    calibration = learn_totals(moments, pairs, truth, images, undetected=0.0)
    needed = np.sqrt(truth.var() / variance)
    assert calibration.scale == pytest.approx(needed, rel=0.15)
    assert calibration.photos == images
    assert calibration.scale_for(400) == pytest.approx(calibration.scale * np.sqrt(2))
    assert learn_totals(moments * 0.01, pairs, truth // 99, images, undetected=0.0).scale == 1  # too few


def test_totals_that_no_scale_covers_are_not_called_calibrated():
    random = np.random.default_rng(0)
    images = 300
    truth = np.where(random.uniform(size=images) < 0.5, 0, 20)
    mean, none = np.full(images, 10.0), np.full(images, 1e-9)
    moments = np.column_stack([mean, none, np.ones(images), mean, mean])
    calibration = learn_totals(moments, Pairs(np.arange(images), np.ones(images, np.int64)), truth, images, 0.0)
    assert not calibration.calibrated
    assert calibration.scale > 3


def test_totals_that_are_too_low_on_held_out_photos_are_raised_by_category():
    images = 200
    index, categories = np.tile(np.arange(images), 3), np.repeat([1, 3, 90], images)
    expected = np.where(categories == 90, 0.01, 5.0)
    truth = np.where(categories == 1, 6, np.where(categories == 3, 5, 0))
    moments = np.column_stack([expected, expected, np.ones_like(expected), expected, expected])
    calibration = learn_totals(moments, Pairs(index, categories), truth, images, undetected=0.0)
    assert calibration.factor == pytest.approx(1.1, abs=0.01)
    people, cars, rare, unseen = calibration.factors_of([1, 3, 90, 7])
    assert people == pytest.approx(1.2, abs=0.01)
    assert cars == pytest.approx(1.0, abs=0.01)
    assert rare == pytest.approx(calibration.factor, rel=0.05), "two expected objects say little"
    assert unseen == calibration.factor


def test_the_total_is_the_corrected_sum_of_expected_counts_with_an_interval():
    estimator = small_estimator()
    (total,) = total_of(estimator, PHOTOS, ["person"]).values()
    each = [predictions["person"].expected for predictions in estimator.predict_many(PHOTOS, ["person"])]
    (factor,) = estimator.fitted.totals.factors_of([1])
    assert total.expected == pytest.approx(factor * sum(each), rel=1e-6)
    assert total.low < total.expected < total.high
    assert total.images == len(PHOTOS)
    assert set(total_of(estimator, PHOTOS)) >= {"person", "dog"}


def test_made_up_totals_lie_in_their_intervals():
    estimator = CountEstimator(members=4).fit(*made_up_photos(120, seed=3))
    totals = total_of(estimator, PHOTOS)
    truth = {LABELS.categories[c]: sum(LABELS.count(i, c) for i in LABELS.counts) for c in LABELS.categories}
    held = [totals[name].low <= number <= totals[name].high for name, number in truth.items()]
    assert sum(held) >= len(held) - 1


def test_no_images_have_no_totals():
    assert total_of(small_estimator(), []) == {}
    assert total_of(small_estimator(), [], ["dog"])["dog"].to_dict() == {
        "expected": 0.0,
        "low": 0,
        "high": 0,
        "images": 0,
    }


def coverage(fitted, images, labels, seed):
    """Return which totals over 200 draws of 50 photos lie in their intervals, their means, and which are of people."""
    moments, photos, categories, truth, number = [], [], [], [], 0
    for batch in in_batches(labelled_detections(images, labels), 256):
        every, counts = counting_pairs(batch, labels, every=True)
        known = np.isin(every.category_ids, fitted.category_ids)
        pairs = Pairs(*(column[known] for column in every))
        moments.append(infer_pairs(fitted, batch, pairs).moments())
        photos.append(pairs.image_index + number)
        categories.append(pairs.category_ids)
        truth += counts[known].tolist()
        number += len(batch)
    of_pairs, photo, category = np.concatenate(moments), np.concatenate(photos), np.concatenate(categories)
    random, held, expected, are_people = np.random.default_rng(seed), [], [], []
    for _ in range(200):
        drawn = np.isin(photo, random.choice(number, 50, replace=False))
        for category_id in np.unique(category).tolist():
            rows = drawn & (category == category_id)
            factors = fitted.totals.factors_of([category_id])
            mean, variance = joint_moments(of_pairs[rows].sum(0)[None], 50, fitted.prevalence.undetected, factors)
            low, high = total_intervals(mean, variance, fitted.totals.scale_for(50))
            held.append(low[0] <= np.array(truth)[rows].sum() <= high[0])
            expected.append(mean[0])
            are_people.append(category_id == 1)
    return np.array(held), np.array(expected), np.array(are_people)


def real(detector, part):
    folder = data_folder("coco-count")
    detections = read_detections(folder / f"detections_{detector}_{part}.json.gz")
    return detections, read_counts(folder / f"instances_{part}.json.gz")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 101, 102], ids=["used in the design", "new draws", "more new draws"])
def test_totals_of_50_validation_photos_lie_in_their_intervals(seed):
    held, means, are_people = coverage(shipped_estimator().fitted, *real("picodet", "val"), seed)
    for rows in (means >= 0.5, means >= 2, means >= 5, are_people):
        assert 0.85 <= held[rows].mean() <= 0.95


@pytest.mark.slow
def test_so_do_those_of_another_detector_with_few_labels():
    images, labels = real("yolov4tiny", "train")
    images = list(labelled_detections(images, labels))
    chosen = [images[index] for index in np.random.default_rng(7).permutation(len(images))[:300]]
    estimator = CountEstimator(seed=7).fit(chosen, labels.only([image.image_id for image in chosen]))
    held, means, are_people = coverage(estimator.fitted, *real("yolov4tiny", "val"), 103)
    for rows in (means >= 2, means >= 5, are_people):
        assert 0.85 <= held[rows].mean() <= 0.96  # intervals are never narrowed
