import numpy as np
import pytest

from tallybox.boxes import nms
from tallybox.photos import read_photo, sample_photos
from tallybox.vqa.data.store import PhotoFeatures
from tallybox.vqa.regions import choose_regions, regions_of
from tests.support.photos import embedded_detector
from tests.support.shared_data import data_folder


def regions_in(detector, photos) -> list[PhotoFeatures]:
    return [regions_of(raw, photo) for raw, photo in zip(detector.propose(photos), photos, strict=True)]


@pytest.fixture(scope="module")
def regions():
    return regions_in(embedded_detector(), [read_photo(path) for path in sample_photos()])


def test_regions_have_the_scores_of_80_categories_the_best_first(regions):
    for one in regions:
        assert one.features.shape == (len(one.boxes_xyxy), 80)
        assert (one.boxes_xyxy.dtype, one.features.dtype) == (np.float32, np.float16)
        best = one.features.max(1)
        assert (np.diff(best) <= 0).all()
        assert not ((one.features > 0) & (one.features < 0.0099)).any()
    assert regions[1].features[:2].argmax(1).tolist() in ([17, 17], [0, 17], [17, 0], [0, 0])  # horses and riders


def test_regions_are_those_of_suppressing_everything():
    random = np.random.default_rng(0)
    for scale, size in ((0.08, 200), (0.3, 200), (1.0, 900)):
        corner = random.uniform(0, 300, (700, 2))
        boxes = np.concatenate((corner, corner + random.uniform(20, size, (700, 2))), 1).astype(np.float32)
        scores = (random.beta(1, 4, 700) * scale).astype(np.float32)
        kept = np.flatnonzero(nms(boxes, scores, [0.7])[0])
        kept = kept[np.argsort(-scores[kept], kind="stable")]
        assert choose_regions(boxes, scores).tolist() == [box for box in kept if scores[box] > 0.05][:36]


def test_a_photo_of_nothing_has_no_regions():
    assert choose_regions(np.empty((0, 4), np.float32), np.empty(0, np.float32)).tolist() == []
    assert regions_in(embedded_detector(), []) == []


def test_photos_of_coco_have_the_regions_of_the_data():
    data = np.load(data_folder("coco-vqa") / "features_picodet_val.npz")
    ends, rows = data["num_boxes"].cumsum(), {image_id: row for row, image_id in enumerate(data["image_ids"].tolist())}
    for path in sorted(data_folder("coco-photos").glob("*.jpg"))[:12]:
        row = rows[int(path.stem)]
        there = slice(ends[row] - data["num_boxes"][row], ends[row])
        found = regions_in(embedded_detector(), [read_photo(path)])[0]
        np.testing.assert_allclose(found.boxes_xyxy, data["boxes_xyxy"][there], atol=0.06)  # there to a tenth
        # A score at the lower limit may be on either side of it.
        np.testing.assert_allclose(found.features.astype(float), data["scores"][there].astype(float), atol=0.0101)
        assert found.size_wh == tuple(data["sizes_wh"][row])
