"""A report of counted photos: one static HTML page without external requests."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from io import BytesIO
from pathlib import Path
from string import Template

from tallybox.estimator.prediction import CountPrediction, TotalPrediction, interval_text, marked_interval
from tallybox.files import write_text
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.pipeline import PhotoResult
from tallybox.photos.report_plot import draw_over_time

TEMPLATE = Path(__file__).parent / "data" / "report.html"
MAX_SIDE, QUALITY = 560, 60  # of a picture: about 55 kB, so that 500 photos take less than 40 MB


class Report:
    """Collects counted photos; `write` writes the page."""

    def __init__(self, counter: PhotoCounter) -> None:
        self._counter = counter
        self._rows: list[str] = []
        self._saturated = 0
        self._frames: list[PhotoResult] = []

    def add(self, photo: PhotoResult) -> None:
        """Add a counted photo with its picture."""
        if photo.seconds is not None:
            self._frames.append(replace(photo, photo=None, detections=None))
        encoded, drawn = BytesIO(), self._counter.draw(photo)
        drawn.thumbnail((MAX_SIDE, 2 * MAX_SIDE))
        drawn.save(encoded, format="JPEG", quality=QUALITY)
        picture = f"data:image/jpeg;base64,{b64encode(encoded.getbuffer()).decode()}"
        counted = sorted(photo.counts.items(), key=lambda pair: -pair[1].count)
        counts = "".join(_count_item(name, p) for name, p in counted if p.count > 0)
        self._saturated += any(p.saturated and p.count > 0 for _, p in counted)
        name, total = escape(str(photo.path)), sum(p.count for _, p in counted)
        self._rows.append(
            f'<tr><td><button><img loading="lazy" alt="{name}" src="{picture}"></button></td><td>{name}</td>'
            f'<td data-value="{total}"><ul>{counts or "<li>nothing counted</li>"}</ul></td></tr>'
        )

    def write(self, path: Path, totals: Mapping[str, TotalPrediction]) -> None:
        """Write the page."""
        kind = "frames" if self._frames else "photos"
        notes = [
            "Intervals are calibrated: about 90 % of them cover the true count on photos like the training photos."
            if self._counter.estimator.is_calibrated
            else "Not calibrated: no estimator was fitted to this detector, so counts and intervals are rough guides.",
            "Counts are of the objects visible in a frame; use a tracker to count how many pass."
            if self._frames
            else "The expected total is not the sum of the counts, which is too low.",
        ]
        summary = draw_over_time(self._frames) if self._frames else _totals_table(totals)
        if self._saturated:
            notes.append(f"A limit was reached in {self._saturated} {kind}. These counts may be too low.")
        fields = {
            "photos": len(self._rows),
            "kind": kind,
            "title": kind.capitalize(),
            "summary": summary,
            "rows": "".join(self._rows),
            "notes": " ".join(notes),
        }
        write_text(path, Template(TEMPLATE.read_text(encoding="utf-8")).substitute(fields))


def _count_item(name: str, p: CountPrediction) -> str:
    return f"<li><b>{p}</b> {escape(name)} <small>90&nbsp;%: {marked_interval(p)}</small></li>"


def _totals_table(totals: Mapping[str, TotalPrediction]) -> str:
    shown = sorted((pair for pair in totals.items() if pair[1].high > 0), key=lambda pair: -pair[1].expected)
    largest = max((total.high for _, total in shown), default=1)
    bars = "".join(_bar(name, total, 100 / largest) for name, total in shown)
    heads = "<th>category</th><th>expected</th><th>90&nbsp;%</th><th></th>"
    return f'<h2>Totals</h2><table class="totals"><thead><tr>{heads}</tr></thead><tbody>{bars}</tbody></table>'


def _bar(name: str, total: TotalPrediction, scale: float) -> str:
    """Return a row with the expected total as a bar and its interval as a line; ``scale`` is per cent an object."""
    expected = f'<i style="width:{scale * min(total.expected, total.high):.1f}%"></i>'
    interval = f'<s style="left:{scale * total.low:.1f}%;width:{scale * (total.high - total.low):.1f}%"></s>'
    cells = f"<th>{escape(name)}</th><td>{total.expected:.0f}</td><td>{interval_text(total)}</td>"
    return f'<tr>{cells}<td><div class="bar">{expected}{interval}</div></td></tr>'
