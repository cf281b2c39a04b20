import pytest

from tallybox import Detections
from tallybox.photos import pipeline
from tallybox.photos.pipeline import detect_each
from tests.support.photos import gradient


class Recorder:
    """A detector that sees nothing and records the sizes of its batches."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def detect(self, photos):
        self.batches.append(len(photos))
        return [Detections.empty(photo.name, photo.size_wh) for photo in photos]


@pytest.fixture
def folder(tmp_path):
    for name in ("c.jpg", "a.JPEG", "b.png", "below/d.webp", "below/.hidden.jpg"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        gradient(20, 10).save(path)
    (tmp_path / "notes.txt").write_text("no photo")
    return tmp_path


def test_batches_come_in_order_and_failures_keep_their_positions(folder, monkeypatch):
    (folder / "broken.jpg").write_bytes(b"\xff\xd8broken")
    paths = [folder / "a.JPEG", folder / "broken.jpg", folder / "b.png", folder / "c.jpg", folder / "gone.jpg"]
    detector = Recorder()
    monkeypatch.setattr(pipeline, "BATCH", 2)
    found = list(detect_each(paths, detector))
    assert [photo.path for photo in found] == paths
    images = [photo.detections for photo in found]
    assert [None if image is None else image.image_id for image in images] == [
        str(paths[0]),
        None,
        str(paths[2]),
        str(paths[3]),
        None,
    ]
    for photo in found:
        assert (photo.error is None) == (photo.detections is not None)
        assert photo.error is None or str(photo.path) in str(photo.error)
    assert detector.batches == [1, 2]


def test_photos_are_read_only_a_batch_ahead(folder, monkeypatch):
    monkeypatch.setattr(pipeline, "BATCH", 2)
    taken: list[int] = []

    def paths():
        for number in range(20):
            taken.append(number)
            yield folder / "b.png"

    stream = detect_each(paths(), Recorder())
    next(stream)
    assert len(taken) <= 6
