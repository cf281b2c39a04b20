"""A real Ray cluster on this machine: a head without work and two workers, one of which is killed on the way."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from benchmarks.photos import made_from_samples

from tallybox.photos.counter import PhotoCounter
from tallybox.photos.distributed import count_each_with_ray, detect_each_with_ray
from tallybox.photos.picodet import PicoDet
from tallybox.photos.pipeline import PhotoResult, detect_each
from tallybox.photos.shipped import sample_photos, shipped_estimator
from tests.support.predictions import assert_same_counts

pytestmark = [
    pytest.mark.slow,  # a cluster takes twenty seconds to come up
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


class SmallPicoDet(PicoDet):
    """PicoDet that is pickled as it is, and faster."""

    def __init__(self) -> None:
        super().__init__(size=320, device="cpu")


class RecordingPicoDet(SmallPicoDet):
    """Leaves a file for every photo that it begins to look at, named by the photo, the node and the process."""

    def __init__(self, records: Path) -> None:
        super().__init__()
        self.records = records

    def detect(self, photos):
        import ray

        node = ray.get_runtime_context().get_node_id()
        for photo in photos:
            (self.records / f"{Path(photo.name).stem} {node} {os.getpid()}").touch()
        return super().detect(photos)


STORE_BYTES = 128 << 20  # Ray's default is a third of the memory for each node


@pytest.fixture(scope="module")
def cluster():
    """A head without work and two workers of one core each, which this process is connected to.

    Ray keeps the address of the latest cluster in one file, so that processes would join each other's clusters.
    """
    ray = pytest.importorskip("ray", reason="needs Ray; pip install 'tallybox[ray]'")
    from ray.cluster_utils import Cluster

    with (Path(tempfile.gettempdir()) / "tallybox-tests-with-ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            workers = [cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES) for _ in range(2)]
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            yield cluster, workers
            ray.shutdown()
        finally:
            cluster.shutdown()


@pytest.fixture
def folder(tmp_path):
    """The sample photos, and before the last a file that is no photo."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for path in sample_photos():
        shutil.copy(path, photos)
    (photos / "no_photo.jpg").write_bytes(b"\xff\xd8broken")
    return photos


def assert_same(found: list[PhotoResult], expected: list[PhotoResult]) -> None:
    assert [photo.path for photo in found] == [photo.path for photo in expected]
    for one, other in zip(found, expected, strict=True):
        assert str(one.error) == str(other.error)
        assert (one.detections is None) == (other.detections is None)
        if one.detections is not None:
            assert one.detections.image_id == other.detections.image_id == str(one.path)
            assert one.detections.image_size == other.detections.image_size
            assert one.detections.scores == pytest.approx(other.detections.scores, abs=1e-5)
            assert one.detections.boxes == pytest.approx(other.detections.boxes, abs=1e-2)
            assert_same_counts(*({name: p.to_dict() for name, p in each.counts.items()} for each in (one, other)))


def test_photos_are_counted_as_without_ray(cluster, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    paths = [Path("photos") / path.name for path in sorted(folder.iterdir())]  # workers run in another folder
    counter = PhotoCounter(device="cpu")
    assert_same(list(count_each_with_ray(counter, paths)), counter.count_many(paths))
    asked = list(count_each_with_ray(counter, paths[:1], ["bus", "dog"]))
    assert_same(asked, counter.count_many(paths[:1], ["bus", "dog"]))
    assert list(asked[0].counts) == ["bus", "dog"]
    (gone,) = count_each_with_ray(counter, [Path("gone.jpg")])
    assert gone.path == Path("gone.jpg")
    assert "gone.jpg" in str(gone.error)
    assert list(count_each_with_ray(counter, [])) == []


def test_photos_are_detected_as_without_ray(cluster, folder):
    paths = sorted(folder.iterdir())
    found = list(detect_each_with_ray("picodet", (), paths))
    expected = list(detect_each(paths, PicoDet(device="cpu")))
    assert [photo.path for photo in found] == paths
    for one, other in zip(found, expected, strict=True):
        assert str(one.error) == str(other.error)
        if other.detections is not None:
            assert one.detections.category_ids.tolist() == other.detections.category_ids.tolist()
            assert one.detections.scores == pytest.approx(other.detections.scores, abs=1e-5)


def test_the_command_prints_what_it_prints_without_ray(cluster, folder):
    head, _ = cluster
    command = [sys.executable, "-m", "tallybox", "count", folder.name, "--json"]
    where = {"cwd": folder.parent, "env": {**os.environ, "RAY_ADDRESS": head.address}}
    results = [
        subprocess.run([*command, "--engine", engine], capture_output=True, text=True, timeout=300, **where)
        for engine in ("ray", "local")
    ]
    ray, local = results
    assert ray.returncode == local.returncode == 1  # there is a file that is no photo
    assert ray.stderr == local.stderr
    said, expected = (json.loads(result.stdout)["images"] for result in results)
    assert len(said) == 3
    for one, other in zip(said, expected, strict=True):
        assert one["image"] == other["image"]
        assert_same_counts(one["counts"], other["counts"])


def test_nothing_is_lost_or_counted_twice_when_a_worker_is_killed(cluster, tmp_path):
    head, workers = cluster
    photos, records = tmp_path / "photos", tmp_path / "records"
    photos.mkdir()
    records.mkdir()
    paths = made_from_samples(photos, 160)  # eight tasks
    killed = workers[0]
    found = []
    for counted in count_each_with_ray(PhotoCounter(RecordingPicoDet(records), shipped_estimator()), paths):
        if not found:
            wait_for_another_record(records, killed.node_id)
            head.remove_node(killed, allow_graceful=False)
        found.append(counted)
    begun = [record.name.split()[0] for record in records.iterdir()]
    assert len(begun) > len(set(begun)) == len(paths)  # the kill came in time to matter
    assert_same(found, PhotoCounter(SmallPicoDet(), shipped_estimator()).count_many(paths))


def wait_for_another_record(records: Path, node_id: str) -> None:
    """Wait until a worker has begun another photo, so that a task is running there."""
    before, end = len(list(records.glob(f"* {node_id} *"))), time.monotonic() + 60
    while len(list(records.glob(f"* {node_id} *"))) == before:
        assert time.monotonic() < end, "the worker does nothing"
        time.sleep(0.01)
