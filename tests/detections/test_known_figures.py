"""Figures on real photos that were known before this code: what tuned NMS reaches on unseen ones."""

import pytest

from tallybox.detections.baselines import tabulate, tune
from tallybox.detections.labels import counting_pairs, labelled_detections
from tallybox.detections.metrics import count_metrics
from tallybox.detections.readers import read_counts, read_detections
from tests.support.shared_data import data_folder
from tests.support.tolerances import KNOWN_FIGURES


def real_pairs(part: str):
    """Images, their pairs, and the true counts."""
    folder = data_folder("coco-count")
    labels = read_counts(folder / f"instances_{part}.json.gz")
    detections = read_detections(folder / f"detections_yolov4tiny_{part}.json.gz")
    images = list(labelled_detections(detections, labels))
    return images, *counting_pairs(images, labels)


@pytest.fixture(scope="module")
def fitting_pairs():
    return real_pairs("train")


@pytest.fixture(scope="module")
def fitting_table(fitting_pairs):
    return tabulate(*fitting_pairs[:2])


@pytest.fixture(scope="module")
def unseen_pairs():
    return real_pairs("val")


def expected(name: str, figure: float):
    return pytest.approx(figure, abs=KNOWN_FIGURES[name].atol)


def test_pairs_of_real_photos_are_as_many_as_known(fitting_pairs, unseen_pairs):
    assert (len(fitting_pairs[2]), len(unseen_pairs[2])) == (12356, 3933)


@pytest.mark.parametrize(
    ("metric", "per_category", "figures"),
    [
        ("exact", False, {"exact": 0.467, "mae": 1.18}),
        ("exact", True, {"exact": 0.478, "mae": 1.15}),
        ("mae", True, {"mae": 1.12}),
    ],
)
def test_nms_tuned_on_3000_photos(fitting_table, fitting_pairs, unseen_pairs, metric, per_category, figures):
    counter = tune(fitting_table, *fitting_pairs[1:], metric, per_category=per_category)
    scores = count_metrics(counter.counts(*unseen_pairs[:2]), unseen_pairs[2])
    assert {name: scores[name] for name in figures} == {
        name: expected(name, figure) for name, figure in figures.items()
    }


@pytest.mark.parametrize(("photos", "exact"), [(30, 0.459), (100, 0.467), (300, 0.465), (1000, 0.465)])
def test_nms_tuned_on_the_first_photos(fitting_pairs, unseen_pairs, photos, exact):
    labels = read_counts(data_folder("coco-count") / "instances_train.json.gz")
    labels = labels.only(sorted(labels.counts)[:photos])
    images = [image for image in fitting_pairs[0] if image.image_id in labels.counts]
    pairs, truth = counting_pairs(images, labels)
    scores = count_metrics(tune(tabulate(images, pairs), pairs, truth).counts(*unseen_pairs[:2]), unseen_pairs[2])
    assert scores["exact"] == expected("exact", exact)
