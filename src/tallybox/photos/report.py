"""A report of counted photos: one static HTML page without external requests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from math import floor, log10
from pathlib import Path
from string import Template

from tallybox.detections.categories import named, plural
from tallybox.estimator.prediction import CountPrediction, TotalPrediction, interval_text, marked_interval
from tallybox.files import write_text
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.images import jpeg_url
from tallybox.photos.outlines import category_colours
from tallybox.photos.pipeline import PhotoResult

TEMPLATE = Path(__file__).parent / "data" / "report.html"
UNCOUNTED = "#9aa1a8"  # the colour of a category that no photo counts
MAX_SIDE, QUALITY = 560, 60  # of a picture: about 55 kB, so that 500 photos take less than 40 MB
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 300, 46, 120, 12, 40  # of a plot, and its margins
MAX_CATEGORIES, TICKS = 4, 4  # in a plot, and on each of its axes


class Report:
    """Collects counted photos; `write` writes the page."""

    def __init__(self, counter: PhotoCounter) -> None:
        self._counter = counter
        self._rows: list[str] = []
        self._saturated = 0
        self._colours: dict[str, str] = {}
        self._frames: list[PhotoResult] = []

    def add(self, photo: PhotoResult) -> None:
        """Add a counted photo with its picture."""
        if photo.seconds is not None:
            self._frames.append(replace(photo, photo=None, detections=None))
        drawn = self._counter.draw(photo, colours=self._colours, with_caption=False)
        picture = jpeg_url(drawn, MAX_SIDE, QUALITY)
        colours = category_colours(photo.counts, self._colours)
        counts = "".join(_count_item(name, photo.counts[name], colour) for name, colour in colours.items())
        self._saturated += any(photo.counts[name].saturated for name in colours)
        name, total = escape(str(photo.path)), sum(p.count for p in photo.counts.values())
        self._rows.append(
            f'<tr><td><button aria-label="Enlarge {name}"><img loading="lazy" alt="" src="{picture}"></button></td>'
            f'<td>{name}</td><td data-value="{total}"><ul>{counts or "<li>nothing counted</li>"}</ul></td></tr>'
        )

    def write(self, path: Path, totals: Mapping[str, TotalPrediction]) -> None:
        """Write the page."""
        kind, number = "frames" if self._frames else "photos", len(self._rows)
        notes = [
            "Intervals are calibrated: about 90 % of them cover the true count on photos like the training photos."
            if self._counter.estimator.is_calibrated
            else "Not calibrated: no estimator was fitted to this detector, so counts and intervals are rough guides.",
            "Counts are of the objects visible in a frame; use a tracker to count how many pass."
            if self._frames
            else "Totals add up expected values; adding up the counts would give too little.",
            "In the pictures, dashed boxes are doubtful.",
        ]
        if self._saturated:
            notes.append(f"Counts marked “limit reached” may be too low ({self._saturated} of {number} {kind}).")
        videos = groupby(self._frames, key=lambda frame: str(frame.path).rpartition("#")[0])
        plots = [_plot(video, [*frames], self._colours) for video, frames in videos]
        fields = {
            "photos": f"{number} {kind if number != 1 else kind[:-1]}",
            "kind": kind[:-1],
            "title": kind.capitalize(),
            "summary": "".join(plots) or _totals_table(totals, self._colours),
            "rows": "".join(self._rows),
            "notes": " ".join(notes),
        }
        write_text(path, Template(TEMPLATE.read_text(encoding="utf-8")).substitute(fields))


def _count_item(name: str, p: CountPrediction, colour: str) -> str:
    swatch, counted = f'<i style="background:{colour}"></i>', escape(named(str(p), name))
    return f"<li>{swatch}<b>{counted}</b> <small>90&nbsp;%: {marked_interval(p)}</small></li>"


def _totals_table(totals: Mapping[str, TotalPrediction], colours: Mapping[str, str]) -> str:
    """Return the expected totals as dots on their intervals, all on one scale."""
    shown = sorted((pair for pair in totals.items() if pair[1].high > 0), key=lambda pair: -pair[1].expected)
    largest = max((total.high for _, total in shown), default=1)
    rows = "".join(_total_row(name, total, 100 / largest, colours.get(name, UNCOUNTED)) for name, total in shown)
    heads = "<th>category</th><th>expected</th><th>90&nbsp;%</th><th></th>"
    axis = f"<span>0</span><span>{largest}</span>"
    return (
        f'<h2>Totals</h2><div class="scroll"><table class="totals"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>'
        f'<tfoot><tr><td colspan=3></td><td class="bar"><div class="axis">{axis}</div></td></tr></tfoot></table></div>'
    )


def _total_row(name: str, total: TotalPrediction, scale: float, colour: str) -> str:
    """Return one row; ``scale`` is per cent an object."""
    interval = f'<s style="left:{scale * total.low:.1f}%;width:{scale * (total.high - total.low):.1f}%"></s>'
    expected = f'<i style="left:{scale * min(total.expected, total.high):.1f}%"></i>'
    cells = f"<th>{escape(plural(name))}</th><td>{total.expected:.1f}</td><td>{interval_text(total)}</td>"
    return f'<tr>{cells}<td class="bar"><div style="--dot:{colour}">{interval}{expected}</div></td></tr>'


def _plot(video: str, frames: Sequence[PhotoResult], colours: Mapping[str, str]) -> str:
    """Return a plot of the counts of a video's most frequent categories, with 90 % intervals as bands."""
    counts, times = [frame.counts for frame in frames], [frame.seconds or 0.0 for frame in frames]
    names = dict.fromkeys(name for of_frame in counts for name, p in of_frame.items() if p.count)
    shown = sorted(names, key=lambda name: -sum(of_frame[name].count for of_frame in counts))[:MAX_CATEGORIES]
    last, largest = max(times[-1], 1e-3), max([1, *(of_frame[name].high for of_frame in counts for name in shown)])

    def x(seconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / last

    def y(count: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * count / largest

    def points(values: Iterable[int]) -> list[str]:
        return [f"{x(seconds):.1f},{y(count):.1f}" for seconds, count in zip(times, values, strict=True)]

    parts = []
    for tick in range(0, largest + 1, -(-largest // TICKS)):
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    power = 10.0 ** floor(log10(last / TICKS))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= 0.999 * last / TICKS)
    for seconds in (step * number for number in range(int(last / step + 1e-9) + 1)):
        parts.append(f'<text x="{x(seconds):.1f}" y="{HEIGHT - 20}" text-anchor="middle">{seconds:g}</text>')
    parts.append(f'<text x="{x(last / 2):.1f}" y="{HEIGHT - 3}" text-anchor="middle">time in seconds</text>')
    middle = y(largest / 2)
    parts.append(f'<text x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">count</text>')
    for row, name in enumerate(shown):
        colour, label_y = colours[name], TOP + 14 + 20 * row
        predictions = [of_frame[name] for of_frame in counts]
        band = points(p.low for p in predictions) + points(p.high for p in predictions)[::-1]
        line = " ".join(points(p.count for p in predictions))
        parts.append(f'<polygon points="{" ".join(band)}" fill="{colour}" opacity=".2"/>')
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{label_y - 10}" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 30}" y="{label_y}">{escape(plural(name))}</text>')
    plot = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="counts over time">{"".join(parts)}</svg>'
    return f"<h2>{escape(video)}: counts over time</h2><div class=plot tabindex=0>{plot}</div>"
