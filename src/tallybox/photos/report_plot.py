"""Counts over the time of a video, as an SVG for the report."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from math import floor, log10
from pathlib import Path

from tallybox.detections.categories import plural
from tallybox.photos.images import VideoFrame
from tallybox.photos.pipeline import PhotoResult

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 300, 46, 120, 12, 40
MAX_CATEGORIES = 4
TICKS = 4


def draw_over_time(frames: Sequence[PhotoResult], colours: Mapping[str, str]) -> str:
    """Return a plot for each video: the counts of its most frequent categories, with 90 % intervals as bands."""
    plots = []
    for video, group in groupby(frames, key=_video):
        plot = _plot([*group], colours)
        plots.append(f"<h2>{escape(str(video))}: counts over time</h2><div class=plot tabindex=0>{plot}</div>")
    return "".join(plots)


def _video(frame: PhotoResult) -> Path:
    assert isinstance(frame.source, VideoFrame)
    return frame.source.video


def _round_step(at_least: float) -> float:
    """Return the first of 1, 2, 5, 10, 20 ... times a power of ten that is large enough."""
    power: float = 10.0 ** floor(log10(at_least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= 0.999 * at_least)


def _plot(frames: Sequence[PhotoResult], colours: Mapping[str, str]) -> str:
    sums: dict[str, float] = {}
    for frame in frames:
        for name, prediction in frame.counts.items():
            sums[name] = sums.get(name, 0.0) + prediction.count
    shown = [name for name in sorted(sums, key=lambda name: -sums[name]) if sums[name] > 0][:MAX_CATEGORIES]
    times = [frame.seconds or 0.0 for frame in frames]
    highs = [frame.counts[name].high for frame in frames for name in shown if name in frame.counts]
    last, largest = max(times[-1], 1e-3), max([*highs, 1])

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / last

    def y(count: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * count / largest

    def points(values: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x(seconds):.1f},{y(count):.1f}" for seconds, count in values)

    parts = []
    for tick in range(0, largest + 1, -(-largest // TICKS)):
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    step = _round_step(last / TICKS)
    for seconds in (step * number for number in range(int(last / step + 1e-9) + 1)):
        parts.append(f'<text x="{x(seconds):.1f}" y="{HEIGHT - 20}" text-anchor="middle">{seconds:g}</text>')
    parts.append(f'<text x="{x(last / 2):.1f}" y="{HEIGHT - 3}" text-anchor="middle">time in seconds</text>')
    middle = y(largest / 2)
    parts.append(f'<text x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">count</text>')
    for row, name in enumerate(shown):
        colour = colours[name]
        counts = [frame.counts.get(name) for frame in frames]
        low = [(time, float(p.low) if p else 0.0) for time, p in zip(times, counts, strict=True)]
        high = [(time, float(p.high) if p else 0.0) for time, p in zip(times, counts, strict=True)]
        line = [(time, float(p.count) if p else 0.0) for time, p in zip(times, counts, strict=True)]
        parts.append(f'<polygon points="{points([*low, *reversed(high)])}" fill="{colour}" opacity=".2"/>')
        parts.append(f'<polyline points="{points(line)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        label_y = TOP + 14 + 20 * row
        parts.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{label_y - 10}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 30}" y="{label_y}">{escape(plural(name))}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="counts over time">{"".join(parts)}</svg>'
