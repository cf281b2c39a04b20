import re
from pathlib import Path

import pytest

from tallybox.detections.categories import COCO_CATEGORIES
from tallybox.detections.readers import read_counts, read_detections
from tallybox.estimator.evaluation import evaluate
from tallybox.photos.shipped import SHIPPED_ESTIMATOR
from tests.support.photos import embedded_estimator
from tests.support.shared_data import data_folder

CARD = Path(__file__).parents[2] / "docs" / "results" / "log.md"


def test_it_knows_the_detectors_categories_and_is_small():
    assert embedded_estimator().fitted.categories == dict(COCO_CATEGORIES)
    assert SHIPPED_ESTIMATOR.stat().st_size < 300_000


@pytest.mark.slow
def test_the_card_says_what_evaluating_gives():
    folder = data_folder("coco-count")
    found = evaluate(
        embedded_estimator(),
        read_detections(folder / "detections_picodet_val.json.gz"),
        read_counts(folder / "instances_val.json.gz"),
    )
    card = CARD.read_text()
    rows = {"estimator": "estimator", "nms": "NMS, one threshold pair", "nms_per_category": "NMS, tuned"}
    for name, row in rows.items():
        said = re.search(rf"\| {row}[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", card)
        assert said is not None
        assert [f"{found[name][metric]:.3f}" for metric in ("exact", "mae", "rmse")] == list(said.groups())
    assert f"cover {found['coverage90']:.3f}" in card
    for figures in ("coverage90_by_predicted_count", "width90_by_predicted_count"):
        assert " | ".join(f"{figure:.3f}" for figure in found[figures].values()) in card
    assert f"mRMSE is {found['mrmse']:.3f}, and {found['mrmse_nz']:.3f}" in card
