from itertools import combinations

import numpy as np
import pytest

from tallybox.estimator.explanation import merged_into
from tallybox.photos import Photo, read_photo, sample_photos
from tallybox.photos.outlines import Outline, category_colours, draw_outlines, number_places, outlines_of, save_picture
from tests.support.photos import embedded_detector, embedded_estimator, gradient


@pytest.fixture(scope="module")
def riders():
    photo = read_photo(sample_photos()[1])
    image = embedded_detector().detect([photo])[0]
    estimator = embedded_estimator()
    explained = {estimator.category_name(key): one for key, one in estimator.explain(image).items()}
    return photo, image, explained


def test_objects_are_numbered_by_category_and_solid_only_if_clear(riders):
    _, image, explained = riders
    counted = [outline for outline in outlines_of(image, explained) if outline.is_counted]
    assert sorted((outline.name, outline.number) for outline in counted) == sorted(
        (name, number) for name, one in explained.items() for number in range(1, one.prediction.count + 1)
    )
    assert {"horse", "person"} <= {outline.name for outline in counted}
    clear = sum(
        ((one.presence >= 0.5) & (merged_into(one) == range(len(one.presence)))).sum() for one in explained.values()
    )
    assert sum(outline.is_clear for outline in counted) == clear


def test_the_picture_shows_the_colours_and_keeps_the_rest(riders):
    photo, image, explained = riders
    outlines = outlines_of(image, explained)
    predictions = {name: one.prediction for name, one in explained.items()}
    picture = np.asarray(draw_outlines(photo, outlines, predictions)).astype(int)
    original = np.asarray(photo.image).astype(int)
    assert picture.shape[1] == original.shape[1]
    assert picture.shape[0] > original.shape[0]  # the counts in words
    colours = category_colours(predictions)
    for outline in outlines:
        if outline.is_counted:
            x1, y1, _, y2 = (int(corner) for corner in outline.corners)
            edge = picture[y1:y2, x1 : x1 + 4].reshape(-1, 3)  # boxes that cross it may cover a part
            assert (np.abs(edge - list(bytes.fromhex(colours[outline.name][1:]))).sum(1) < 30).mean() > 0.1
    changed = np.abs(picture[: len(original)] - original).sum(2) > 0
    assert changed.mean() < 0.1
    with_all = np.asarray(draw_outlines(photo, outlines, predictions, all_boxes=True))[: len(original)]
    assert (np.abs(with_all - original).sum(2) > 0).mean() > changed.mean()


def test_numbers_lie_in_the_picture_and_not_on_each_other():
    boxes = [(0.0, 0.0, 80.0, 80.0), (4.0, 4.0, 70.0, 70.0), (90.0, 90.0, 99.0, 99.0), (60.0, 70.0, 99.0, 99.0)]
    outlines = [Outline(box, "car", number, True, True) for number, box in enumerate(boxes, start=1)]
    places = [place for _, place in number_places(outlines, 10)]
    assert len(places) == 3
    assert all(10 <= at <= 90 for place in places for at in place)
    assert all(np.hypot(*np.subtract(one, other)) >= 20 for one, other in combinations(places, 2))


@pytest.mark.parametrize("size", [(1, 1), (5000, 3), (12, 3000)])
def test_any_shape_can_be_drawn(tmp_path, size):
    photo = Photo(gradient(*size), size)
    image = embedded_detector().detect([photo])[0]
    person = embedded_estimator().explain(image, [1])[1]
    picture = draw_outlines(photo, outlines_of(image, {"person": person}), {"person": person.prediction})
    save_picture(picture, tmp_path / "new" / "odd.jpg")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["odd.jpg"]
