"""A real Ray cluster on this machine: a head without work and two workers, one of which is killed on the way."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.synthetic_photos import made_up_photos

from tallybox.detections.detections import Detections
from tallybox.detections.parquet import read_parquet, write_parquet
from tallybox.errors import InputError
from tests.support.estimators import small_estimator
from tests.support.predictions import assert_same_counts
from tests.support.ray_cluster import ray_to_ourselves, two_workers

pytestmark = [
    pytest.mark.slow,  # a cluster takes twenty seconds to come up
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]

FILES, IMAGES_IN_FILE = 12, 1000  # each file is a piece of work


@pytest.fixture(scope="module", autouse=True)
def _ray():
    with ray_to_ourselves():
        yield


@pytest.fixture(scope="module")
def estimator_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("estimator") / "small.estimator"
    small_estimator().save(path)
    return path


@pytest.fixture
def cluster():
    """A head without work and two workers, started without connecting to them."""
    with two_workers() as cluster:
        yield cluster


def python(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_nothing_is_lost_or_counted_twice_when_a_worker_is_killed(tmp_path, estimator_file, cluster):
    head, workers = cluster
    photos, _ = made_up_photos(200, seed=5)
    data = tmp_path / "data"
    data.mkdir()
    for file in range(FILES):
        numbers = range(file * IMAGES_IN_FILE, (file + 1) * IMAGES_IN_FILE)
        write_parquet(
            (with_id(photos[number % len(photos)], number) for number in numbers), data / f"{file:02}.parquet"
        )
    command = [
        sys.executable,
        "-m",
        "tallybox",
        "count",
        data,
        "--estimator",
        estimator_file,
        "--engine",
        "ray",
        "--json",
    ]
    errors = tmp_path / "errors.txt"
    with errors.open("w") as stderr:
        environment = {**os.environ, "RAY_ADDRESS": head.address}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment) as process:
            start = [process.stdout.readline() for _ in range(2)]
            assert start[1].startswith('{"image": 0,'), errors.read_text()
            head.remove_node(workers[0], allow_graceful=False)
            output = "".join(start) + process.stdout.read()
    assert process.returncode == 0, errors.read_text()
    assert "lost objects" in errors.read_text() or "Raylet" in errors.read_text()  # the kill came in time to matter
    images = json.loads(output)["images"]
    assert [image["image"] for image in images] == list(range(FILES * IMAGES_IN_FILE))
    for image, (_, predictions) in zip(images, small_estimator().predict_each(read_parquet(data)), strict=True):
        expected = {small_estimator().category_name(key): p.to_dict() for key, p in predictions.items()}
        assert_same_counts(image["counts"], expected)


def with_id(photo: Detections, number: int) -> Detections:
    return Detections.of_checked(photo.boxes, photo.scores, photo.category_ids, photo.image_size, number)


def test_the_command_prints_what_it_prints_without_ray(tmp_path, estimator_file):
    data = tmp_path / "photos.parquet"
    write_parquet([*made_up_photos(40, seed=6)[0], Detections.empty(77)], data)
    command = ("-m", "tallybox", "count", data, "--estimator", estimator_file, "--json")
    local, ray = python(*command), python(*command, "--engine", "ray")
    assert ray.returncode == 0, ray.stderr
    assert ray.stderr == ""
    said, expected = (json.loads(result.stdout)["images"] for result in (ray, local))
    assert len(said) == 41
    for image, same_image in zip(said, expected, strict=True):
        assert image["image"] == same_image["image"]
        assert_same_counts(image["counts"], same_image["counts"])

    damaged = tmp_path / "damaged.parquet"
    scores = np.full(30, 0.5, np.float32)
    scores[17] = np.nan
    zeros, nines = np.zeros(30, np.float32), np.full(30, 9, np.float32)
    columns = {"image_id": np.arange(30), "category_id": np.full(30, 18), "x1": zeros, "y1": zeros, "x2": nines}
    pq.write_table(pa.table({**columns, "y2": nines, "score": scores}), damaged, row_group_size=10)
    result = python("-m", "tallybox", "count", damaged, "--estimator", estimator_file, "--engine", "ray")
    assert result.returncode == 1
    assert "damaged.parquet, record 17: scores must be in [0, 1], but got nan" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_other_files_are_refused_before_anything_starts(tmp_path):
    from tallybox.estimator.ray_engine import predict_each_with_ray

    with pytest.raises(InputError, match=r"must be \.parquet"):
        next(predict_each_with_ray(small_estimator(), tmp_path / "detections.json"))
