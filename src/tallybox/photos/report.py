"""A report of counted photos: one static HTML page without external requests."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from io import BytesIO
from pathlib import Path
from string import Template

from tallybox.detections.categories import named, plural
from tallybox.estimator.prediction import CountPrediction, TotalPrediction, interval_text, marked_interval
from tallybox.files import write_text
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.outlines import category_colours
from tallybox.photos.pipeline import PhotoResult
from tallybox.photos.report_plot import draw_over_time

TEMPLATE = Path(__file__).parent / "data" / "report.html"
UNCOUNTED = "#9aa1a8"  # the colour of a category that no photo counts
MAX_SIDE, QUALITY = 560, 60  # of a picture: about 55 kB, so that 500 photos take less than 40 MB


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
        encoded, drawn = BytesIO(), self._counter.draw(photo, colours=self._colours, with_caption=False)
        drawn.thumbnail((MAX_SIDE, MAX_SIDE))
        drawn.save(encoded, format="JPEG", quality=QUALITY)
        picture = f"data:image/jpeg;base64,{b64encode(encoded.getbuffer()).decode()}"
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
        kind = "frames" if self._frames else "photos"
        notes = [
            "Intervals are calibrated: about 90 % of them cover the true count on photos like the training photos."
            if self._counter.estimator.is_calibrated
            else "Not calibrated: no estimator was fitted to this detector, so counts and intervals are rough guides.",
            "Counts are of the objects visible in a frame; use a tracker to count how many pass."
            if self._frames
            else "Totals add up expected values; adding up the counts would give too little.",
        ]
        summary = draw_over_time(self._frames, self._colours) if self._frames else _totals_table(totals, self._colours)
        notes.append("In the pictures, dashed boxes are doubtful.")
        if self._saturated:
            notes.append(
                f"Counts marked “limit reached” may be too low ({self._saturated} of {len(self._rows)} {kind})."
            )
        fields = {
            "photos": f"{len(self._rows)} {kind if len(self._rows) != 1 else kind[:-1]}",
            "kind": kind[:-1],
            "title": kind.capitalize(),
            "summary": summary,
            "rows": "".join(self._rows),
            "notes": " ".join(notes),
        }
        write_text(path, Template(TEMPLATE.read_text(encoding="utf-8")).substitute(fields))


def _count_item(name: str, p: CountPrediction, colour: str) -> str:
    number, _, what = named(str(p).removeprefix("about "), name).partition(" ")
    about = "about " if p.saturated else ""
    swatch = f'<i style="background:{colour}"></i>'
    return f"<li>{swatch}<b>{about}{number}</b> {escape(what)} <small>90&nbsp;%: {marked_interval(p)}</small></li>"


def _totals_table(totals: Mapping[str, TotalPrediction], colours: Mapping[str, str]) -> str:
    """Return the expected totals as dots on their intervals, all on one scale."""
    shown = sorted((pair for pair in totals.items() if pair[1].high > 0), key=lambda pair: -pair[1].expected)
    largest = max((total.high for _, total in shown), default=1)
    rows = "".join(_total_row(name, total, 100 / largest, colours.get(name, UNCOUNTED)) for name, total in shown)
    axis = f'<td class="bar"><div class="axis"><span>0</span><span>{largest}</span></div></td>'
    heads = "<th>category</th><th>expected</th><th>90&nbsp;%</th><th></th>"
    return (
        f'<h2>Totals</h2><div class="scroll"><table class="totals"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>'
        f"<tfoot><tr><td></td><td></td><td></td>{axis}</tr></tfoot></table></div>"
    )


def _total_row(name: str, total: TotalPrediction, scale: float, colour: str) -> str:
    """Return one row; ``scale`` is per cent an object."""
    interval = f'<s style="left:{scale * total.low:.1f}%;width:{scale * (total.high - total.low):.1f}%"></s>'
    expected = f'<i style="left:{scale * min(total.expected, total.high):.1f}%"></i>'
    cells = f"<th>{escape(plural(name))}</th><td>{total.expected:.1f}</td><td>{interval_text(total)}</td>"
    return f'<tr>{cells}<td class="bar"><div style="--dot:{colour}">{interval}{expected}</div></td></tr>'
