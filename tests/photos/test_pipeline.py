from tallybox import Detections
from tallybox.photos.pipeline import BATCH, detect_each
from tests.support.photos import gradient


class Blind:
    """A detector that sees nothing."""

    def detect(self, photos):
        return [Detections.empty(photo.name, photo.size_wh) for photo in photos]


def test_photos_are_read_only_a_batch_ahead(tmp_path):
    gradient(20, 10).save(tmp_path / "b.png")
    taken: list[int] = []

    def paths():
        for number in range(100):
            taken.append(number)
            yield tmp_path / "b.png"

    stream = detect_each(paths(), Blind())
    next(stream)
    assert len(taken) <= 2 * BATCH
