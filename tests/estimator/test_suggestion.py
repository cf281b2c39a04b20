"""Which images to label next, and the learning curve that says what labels bring."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tallybox import CountEstimator, Detections
from tallybox.bench.photos import made_up_photos
from tallybox.cli import cli
from tallybox.cli.suggest import what_labels_bring
from tallybox.errors import InputError
from tallybox.estimator import training
from tallybox.estimator.fitting import MIN_CURVE_PHOTOS
from tallybox.estimator.inference import CurvePoint
from tallybox.estimator.suggestion import doubtful_images, expected_at
from tallybox.files import read_tensors, write_tensors
from tests.support.detection_sets import coco_results, write_json

PHOTOS, LABELS = made_up_photos(MIN_CURVE_PHOTOS, seed=3)


@pytest.fixture(scope="module")
def estimator():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "MIN_STEPS", 20)
        return CountEstimator(members=2).fit(PHOTOS, LABELS)


def test_the_learning_curve_is_measured_on_photos_left_out_and_stored(tmp_path, estimator):
    curve = estimator.fitted.learning_curve
    assert [point.photos for point in curve] == [10, 20], "a quarter, half, and what each of two members learned from"
    assert all(0 <= point.exact <= 1 and point.mae >= 0 for point in curve)
    estimator.save(tmp_path / "estimator.safetensors")
    assert CountEstimator.load(tmp_path / "estimator.safetensors").fitted.learning_curve == curve


def test_few_photos_have_no_curve(monkeypatch):
    monkeypatch.setattr(training, "MIN_STEPS", 20)
    few = CountEstimator(members=2).fit(PHOTOS[:-1], LABELS.only([image.image_id for image in PHOTOS[:-1]]))
    assert few.fitted.learning_curve == ()
    assert "not known" in what_labels_bring(few.fitted)


@given(
    errors=st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)),
    photos=st.integers(88, 10_000),
)
def test_more_labels_never_promise_less_nor_more_than_everything(errors, photos):
    points = [CurvePoint(n, 1 - error, error) for n, error in zip((25, 88), errors, strict=True)]
    reached = expected_at(points, photos)
    assert points[-1].exact - 1e-4 <= reached.exact <= 1
    assert 0 <= reached.mae <= points[-1].mae + 1e-4


def test_a_curve_that_falls_by_the_square_root_is_continued_exactly():
    points = [CurvePoint(n, 0.8 - n**-0.5, 0.3 + 2 * n**-0.5) for n in (25, 88)]
    assert expected_at(points, 352)[1:] == pytest.approx((0.8 - 352**-0.5, 0.3 + 2 * 352**-0.5), abs=1e-4)


def test_doubtful_images_come_first_and_clear_ones_last(estimator):
    clear = Detections.empty("clear")
    chosen = doubtful_images(estimator, [clear, *PHOTOS], len(PHOTOS) + 1)
    doubts = [suggestion.doubt for suggestion in chosen]
    assert doubts == sorted(doubts, reverse=True)
    assert "clear" not in [suggestion.image_id for suggestion in chosen[: len(PHOTOS)]]
    by_hand = {image.image_id: predictions for image, predictions in estimator.predict_each(PHOTOS)}
    for suggestion in chosen:
        widths = [p.high - p.low for p in by_hand.get(suggestion.image_id, {}).values() if p.calibrated]
        assert suggestion.doubt == sum(widths)
        assert suggestion.prediction.high - suggestion.prediction.low == max(widths, default=0)


def test_boxes_of_categories_without_labels_are_seen_as_count_sees_them(monkeypatch):
    monkeypatch.setattr(training, "MIN_STEPS", 20)
    counts = {(image.image_id, 1): LABELS.count(image.image_id, 1) for image in PHOTOS}
    people = CountEstimator(members=2).fit(PHOTOS, counts)
    by_hand = {image.image_id: predictions for image, predictions in people.predict_each(PHOTOS)}
    for suggestion in doubtful_images(people, PHOTOS, 10):
        assert suggestion.category == "person"
        assert suggestion.prediction.to_dict() == by_hand[suggestion.image_id]["person"].to_dict()
        assert suggestion.prediction.expected == by_hand[suggestion.image_id]["person"].expected
    with pytest.raises(InputError, match="it never learned from 18; label some photos of it and fit again"):
        doubtful_images(people, PHOTOS, 10, [1, 18])


def test_the_command_lists_what_has_no_labels_yet(tmp_path, estimator):
    file, detections = tmp_path / "own.safetensors", write_json(tmp_path / "found.json", coco_results(PHOTOS))
    estimator.save(file)
    labelled = [image.image_id for image in PHOTOS[::2]]
    labels = tmp_path / "labels.csv"
    labels.write_text("image_id,person\n" + "".join(f"{i},{LABELS.count(i, 1)}\n" for i in labelled))
    arguments = ["suggest", str(file), str(detections), "--number", "5", "--labels", str(labels)]
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert len(printed["suggestions"]) == 5
    assert not {photo["image"] for photo in printed["suggestions"]} & set(labelled)
    assert [point["photos"] for point in printed["learning_curve"]] == [10, 20]
    assert [point["photos"] for point in printed["expected"]] == [2 * MIN_CURVE_PHOTOS, 4 * MIN_CURVE_PHOTOS]
    table = CliRunner().invoke(cli, arguments).stdout
    assert "the 5 of 20 images that are worth labelling next, the most doubtful first" in table
    assert f"Learned from {MIN_CURVE_PHOTOS} photos: " in table


def test_curves_in_damaged_files_are_refused(tmp_path, estimator):
    path = tmp_path / "odd.safetensors"
    estimator.save(path)
    header, tensors = read_tensors(path)
    write_tensors(path, tensors, {**header, "learning_curve": [[10, 7.0, 0.1], [40, 0.5, 0.1]]})
    with pytest.raises(InputError, match="a share of exact counts must be from 0 to 1, but it is 7"):
        CountEstimator.load(path)
