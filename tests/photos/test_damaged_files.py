import resource
import time

import numpy as np
import pytest

from tallybox.errors import InputError
from tallybox.photos import read_photo, sample_photos
from tests.support.photos import encoded, gradient

KINDS = {
    "jpeg": {"quality": 85},
    "png": {},
    "webp": {"quality": 80},
    "gif": {},
    "tiff": {"compression": "tiff_lzw"},
    "bmp": {},
    "ppm": {},
}
LONGEST_SECONDS = 5.0
MOST_MORE_MEMORY = 600_000  # KiB: the pixel limit as RGB and a copy of it

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow's, about the damage that is done here


def survives(path, content: bytes) -> bool:
    """Read a damaged file: a photo or an `InputError`, soon; return whether it was a photo."""
    path.write_bytes(content)
    start = time.perf_counter()
    said = ""
    try:
        assert read_photo(path).image.mode == "RGB"
    except InputError as error:
        said = str(error)
    assert time.perf_counter() - start < LONGEST_SECONDS
    assert not said or (str(path) in said and "\n" not in said)
    return not said


def test_a_photo_cut_at_every_kilobyte(tmp_path):
    whole = sample_photos()[0].read_bytes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read = [survives(tmp_path / "cut.jpg", whole[:length]) for length in range(0, len(whole) - 1, 1024)]
    assert not any(read[:-1])  # the last piece may lack no more than the end mark
    assert survives(tmp_path / "whole.jpg", whole)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MORE_MEMORY


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [60, pytest.param(3000, marks=pytest.mark.slow)])
def test_flipped_bits(tmp_path, kind, times):
    random = np.random.default_rng(times)
    whole = np.frombuffer(encoded(gradient(96, 64), kind, **KINDS[kind]), np.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(times):
        damaged = whole.copy()
        # Half of the flips hit the first bytes, where sizes and tables stand.
        reach = len(whole) if random.random() < 0.5 else min(len(whole), 200)
        places = random.integers(0, reach, random.integers(1, 6))
        damaged[places] ^= (1 << random.integers(0, 8, len(places))).astype(np.uint8)
        survives(tmp_path / f"flipped.{kind}", damaged.tobytes())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MORE_MEMORY
