import numpy as np
import pytest

from tallybox.photos import Photo, read_photo, sample_photos
from tallybox.photos.outlines import COLOURS, draw_outlines, outlines_of, save_picture
from tests.support.photos import embedded_detector, embedded_estimator, gradient


@pytest.fixture(scope="module")
def riders():
    photo = read_photo(sample_photos()[1])
    image = embedded_detector().detect([photo])[0]
    estimator = embedded_estimator()
    explained = {estimator.category_name(key): one for key, one in estimator.explain(image).items()}
    return photo, image, explained


def test_each_counted_object_has_a_colour_that_its_duplicates_share(riders):
    _, image, explained = riders
    outlines = outlines_of(image, explained)
    counted = [outline for outline in outlines if outline.is_counted]
    assert sorted((outline.name, outline.number) for outline in counted) == sorted(
        (name, number) for name, one in explained.items() for number in range(1, one.prediction.count + 1)
    )
    assert {"horse", "person"} <= {outline.name for outline in counted}
    colours = {(outline.name, outline.number): outline.colour for outline in counted}
    assert len(set(colours.values())) == len(colours)
    assert set(colours.values()) <= set(COLOURS)
    duplicates = [outline for outline in outlines if outline.number and not outline.is_counted]
    assert duplicates
    assert all(outline.colour == colours[outline.name, outline.number] for outline in duplicates)


def test_the_picture_shows_the_colours_and_keeps_the_rest(riders):
    photo, image, explained = riders
    outlines = outlines_of(image, explained)
    predictions = {name: one.prediction for name, one in explained.items()}
    picture = np.asarray(draw_outlines(photo, outlines, predictions)).astype(int)
    original = np.asarray(photo.image).astype(int)
    assert picture.shape[1] == original.shape[1]
    assert picture.shape[0] > original.shape[0]  # the counts in words
    for outline in outlines:
        if outline.is_counted:
            x1, y1, _, y2 = (int(corner) for corner in outline.corners)
            edge = picture[y1:y2, x1 : x1 + 4].reshape(-1, 3)  # boxes that cross it may cover a part
            assert (np.abs(edge - list(bytes.fromhex(outline.colour[1:]))).sum(1) < 30).mean() > 0.1
    unchanged = np.abs(picture[: len(original)] - original).sum(2) == 0
    assert unchanged.mean() > 0.6


@pytest.mark.parametrize("size", [(1, 1), (5000, 3), (12, 3000)])
def test_any_shape_can_be_drawn(tmp_path, size):
    photo = Photo(gradient(*size), size)
    image = embedded_detector().detect([photo])[0]
    person = embedded_estimator().explain(image, [1])[1]
    picture = draw_outlines(photo, outlines_of(image, {"person": person}), {"person": person.prediction})
    save_picture(picture, tmp_path / "new" / "odd.jpg")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["odd.jpg"]
