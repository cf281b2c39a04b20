import sys

import pytest

from tallybox.errors import InputError, TallyboxError
from tallybox.photos.specs import detector_of

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
        ("orchard:plain", ["a pear"], "but orchard:plain has no parameter texts"),
        ("orchard:phrases", [], "orchard:phrases looks for phrases and needs at least one"),
        ("orchard:nothing", [], r"must return an object with detect\(photos\), but returned NoneType"),
        ("orchard:broken", [], "but raised RuntimeError: no weights here$"),
        ("orchard:number", [], "has a int of that name"),
        ("orchard:pears", [], "must name a function of orchard, but the module has no such name"),
        ("orchard_broken:plain", [], "but it raised ZeroDivisionError: division by zero"),
        ("no.such.module:plain", [], "there is no module 'no'"),
    ],
)
def test_what_goes_wrong_is_one_line(here, spec, texts, said):
    with pytest.raises(TallyboxError, match=said) as caught:
        detector_of(spec, texts=texts)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, InputError) or "raised" in str(caught.value)
