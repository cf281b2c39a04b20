import json
from functools import partial

import pytest
from benchmarks.synthetic_photos import made_up_photos

from tallybox.detections.categories import quantity
from tallybox.photos import sample_photos
from tallybox.photos.shipped import SHIPPED_ESTIMATOR
from tests.support import commands
from tests.support.detection_sets import coco_results, write_json
from tests.support.estimators import small_estimator

run = partial(commands.run, "explain")
PHOTOS = made_up_photos(3, seed=11)[0]


@pytest.fixture
def detections(tmp_path):
    return write_json(tmp_path / "detections.json", coco_results(PHOTOS))


def test_a_page_says_what_count_says(tmp_path, detections, estimator):
    out = tmp_path / "new" / "page.html"
    ran = run(detections, "--image", 1, "--estimator", estimator, "--out", out)
    assert ran.exit_code == 0, ran.output
    assert ran.stdout == ""
    image = PHOTOS[1]
    there = {key: said for key, said in small_estimator().predict(image).items() if said.high > 0}
    for category_id, said in there.items():
        assert quantity(said.count, small_estimator().category_name(category_id)) in ran.stderr
    assert out.read_text().startswith("<!doctype html>")


def test_a_photo_is_shown_with_what_count_says(tmp_path):
    pytest.importorskip("PIL", reason="needs the package pillow")
    photo = sample_photos()[1]
    out = tmp_path / "page.html"
    ran = run(photo, "--category", "person", "--out", out)
    assert ran.exit_code == 0, ran.output
    counted = json.loads(commands.run("count", photo, "--category", "person", "--json").stdout)
    assert f"{counted['images'][0]['counts']['person']['count']} people" in ran.stderr
    assert "How many in riders_on_a_beach.jpg?" in out.read_text()
    assert "data:image/jpeg;base64," in out.read_text()
    assert str(photo.parent) not in out.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--image"),
        (("--image", "77"), "77"),
        (("--image", "1", "--category", "dragon", "--estimator", SHIPPED_ESTIMATOR), "dragon"),
        (("--image", "1", "--detector", "picodet"), "--detector"),
        (("--image", "1", "--estimator", "nosuch"), "nosuch"),
    ],
)
def test_mistakes_are_one_line(tmp_path, detections, options, said):
    ran = run(detections, *options, "--out", tmp_path / "page.html")
    assert ran.exit_code == 1
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_without_out_the_page_lies_next_to_the_photo(tmp_path):
    photo = tmp_path / "riders.jpg"
    photo.write_bytes(sample_photos()[1].read_bytes())
    ran = run(photo)
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "riders.html").read_text().startswith("<!doctype html>")
