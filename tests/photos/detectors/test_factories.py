import sys

import pytest

from tallybox.errors import InputError
from tallybox.photos.detector import detector_of

MODULE = """
from tallybox import Detections

class Apples:
    def __init__(self, texts=(), device=None):
        self.texts, self.device = texts, device
        self.categories = dict(enumerate(texts)) or {0: "apple"}

    def detect(self, photos):
        return [Detections([[0, 0, 9, 9]], [0.9], [0], photo.size_wh, photo.name) for photo in photos]

def plain(): return Apples()
def phrases(texts, device=None): return Apples(texts, device)
def nothing(): return None
def broken(): raise RuntimeError("no weights here\\nreally")
number = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "orchard.py").write_text(MODULE)
    (tmp_path / "orchard_broken.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("orchard", "orchard_broken"):
        sys.modules.pop(name, None)


def test_a_factory_in_the_current_folder_makes_the_detector(here):
    assert detector_of("orchard:plain").categories == {0: "apple"}
    assert detector_of("orchard:Apples", device="cpu").device == "cpu"
    found = detector_of("orchard:phrases", texts=["a pear"], device="cpu")
    assert (found.texts, found.device, found.categories) == (("a pear",), "cpu", {0: "a pear"})


@pytest.mark.parametrize(
    ("spec", "texts", "said"),
    [
        ("orchard:plain", ["a pear"], "no parameter texts"),
        ("orchard:phrases", [], "'texts'"),
        ("orchard:nothing", [], r"detect\(photos\); got NoneType"),
        ("orchard:broken", [], "RuntimeError: no weights here$"),
        ("orchard:number", [], "not a callable"),
        ("orchard:pears", [], "pears"),
        ("orchard_broken:plain", [], "ZeroDivisionError"),
        ("no.such.module:plain", [], "'no'"),
    ],
)
def test_what_goes_wrong_is_one_line(here, spec, texts, said):
    with pytest.raises(InputError, match=said) as caught:
        detector_of(spec, texts=texts)
    assert spec in str(caught.value)
    assert "\n" not in str(caught.value)
