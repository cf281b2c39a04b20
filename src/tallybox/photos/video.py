"""Frames of a video at regular times, to be counted like photos (PyAV, the extra ``video``)."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallybox.errors import InputError
from tallybox.files import error_summary, import_optional
from tallybox.photos.images import VideoFrame

VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm")
SECONDS_OF_UNIT = {"ms": 0.001, "s": 1.0, "min": 60.0, "": 1.0}


def parse_interval(text: str) -> float:
    """Return the seconds of a time such as ``1s``, ``500ms`` or ``2min``.

    >>> parse_interval("500ms"), parse_interval("2min"), parse_interval("1.5")
    (0.5, 120.0, 1.5)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|)", text.strip())
    if match is None or float(match[1]) == 0:
        raise InputError(f"{text!r} is not an interval such as 1s, 500ms or 2min")
    return float(match[1]) * SECONDS_OF_UNIT[match[2]]


def is_video(path: Path) -> bool:
    """Return whether a file is a video, by its suffix."""
    return path.suffix.lower() in VIDEO_SUFFIXES


def read_frames(path: Path, every: float) -> Iterator[VideoFrame]:
    """Yield the first frame at or after each multiple of ``every`` seconds, upright."""
    with _opened(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        start = float((stream.start_time or 0) * stream.time_base)
        due = 0.0
        for frame in container.decode(stream):
            seconds = (frame.time or 0.0) - start
            if seconds + 1e-6 < due:
                continue
            image = frame.to_image()
            if rotation := getattr(frame, "rotation", 0):  # a phone that was held sideways
                image = image.rotate(rotation, expand=True)
            yield VideoFrame(path, round(seconds, 3), image)
            due = every * (math.floor(seconds / every + 1e-6) + 1)


def expected_frames(path: Path, every: float) -> int:
    """Return about how many frames `read_frames` yields; raise if the file is not a video."""
    with _opened(path) as container:
        duration = (container.duration or 0) / 1_000_000
    return max(1, math.ceil(duration / every))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    av = import_optional("av", needed_for=f"counting in the video {path}", install="'tallybox[video]'")
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise InputError(f"{path} has no video stream")
            yield container
    except av.error.FFmpegError as error:
        raise InputError(f"Cannot read the video {path}: {error_summary(error)}") from None
