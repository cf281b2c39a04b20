from __future__ import annotations

import pytest

from tallybox import Detections
from tallybox.errors import InputError
from tallybox.photos import pipeline
from tallybox.photos.pipeline import detect_each
from tallybox.photos.sources import find_sources
from tests.support.photos import gradient


class Recorder:
    """A detector that sees nothing and remembers the sizes of its batches."""

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


def names(sources) -> list[str]:
    return [source.path.name for source in sources]


def test_folders_and_patterns_give_photos_by_name(folder):
    assert names(find_sources([folder])) == ["a.JPEG", "b.png", "d.webp", "c.jpg"]
    assert names(find_sources([str(folder / "*.jp*g"), folder / "b.png"])) == ["c.jpg", "b.png"]
    assert names(find_sources([str(folder / "**" / "*.webp")])) == ["d.webp"]
    assert all(source.is_photo for source in find_sources([folder, folder / "notes.txt"]))


def test_detections_are_told_by_their_suffix(folder):
    for name in ("x.json.gz", "y.csv", "z.parquet"):
        (folder / name).touch()
        assert not find_sources([folder / name])[0].is_photo
    mixed = find_sources([folder])
    assert mixed[0][:2] == (folder, False)
    assert len(mixed) == 5


def test_what_is_not_there_is_one_line(folder):
    (folder / "empty").mkdir()
    for given in (folder / "none.jpg", str(folder / "*.tif"), folder / "empty"):
        with pytest.raises(InputError, match="must"):
            find_sources([given])


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
