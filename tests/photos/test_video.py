"""Real videos, encoded with PyAV: a drawn pan over a sample photo, a frame every 0.2 s."""

from fractions import Fraction

import numpy as np
import pandas
import pytest

from tallybox.errors import InputError
from tallybox.photos import read_photo, sample_photos
from tallybox.photos.counting import expected_frames, parse_interval, read_frames
from tests.support.commands import run

av = pytest.importorskip("av", reason="videos need the package av")
FRAMES, RATE = 11, 5


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("video") / "clip.mp4"
    photo = np.asarray(read_photo(sample_photos()[1]).image.resize((320, 240)))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=RATE)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = 320, 240, "yuv420p", 2_000_000
        for index in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(np.roll(photo, index, axis=1), format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize(("every", "times"), [(1.0, [0, 1, 2]), (0.5, [0, 0.6, 1, 1.6, 2]), (60.0, [0])])
def test_frames_are_the_first_at_or_after_each_time(clip, every, times):
    frames = list(read_frames(clip, every))
    assert [frame.seconds for frame in frames] == pytest.approx(times)
    assert frames[0].image.size == (320, 240)
    assert abs(expected_frames(clip, every) - len(frames)) <= 1


def test_the_command_writes_a_row_for_each_frame_and_category(clip, tmp_path):
    out, page = tmp_path / "counts.csv", tmp_path / "report.html"
    result = run("count", clip, "--every", "1s", "--category", "horse", "--out", out, "--report", page)
    assert result.exit_code == 0, result.stderr
    assert "tracker" in result.stderr
    table = pandas.read_csv(out)
    assert table["seconds"].tolist() == [0, 1, 2]
    assert (table["category"] == "horse").all()
    assert ((table["low"] <= table["count"]) & (table["count"] <= table["high"])).all()
    assert "<polyline" in page.read_text()


def test_wrong_uses_are_one_line(clip, tmp_path):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    with pytest.raises(InputError, match="broken"):
        list(read_frames(broken, 1.0))
    assert run("count", broken).exit_code == 1
    assert run("count", clip, "--total").exit_code == 2
    assert run("count", sample_photos()[0], "--every", "1s").exit_code == 2
    assert [parse_interval(text) for text in ("500ms", "2min", "1.5")] == [0.5, 120, 1.5]
    with pytest.raises(InputError, match="often"):
        parse_interval("often")
