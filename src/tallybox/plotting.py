"""The style of every figure: one font size, a colour-blind safe palette, two widths, PNG, SVG or PDF."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from tallybox.files import atomic_writing

# Okabe and Ito's palette, safe for all common kinds of colour vision.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"

# For a parameter from 0 to 1, also safe for all common kinds of colour vision.
SEQUENTIAL = colormaps["viridis"]

WIDE, NARROW = 6.75, 3.25  # inches: two columns of a paper and one

STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",  # comes with matplotlib
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.linewidth": 0.3,
    "legend.frameon": False,
    "svg.fonttype": "path",  # the same letters on every machine
    "svg.hashsalt": "tallybox",  # the same file for the same picture
    "savefig.dpi": 180,
}


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Yield a figure of a size in inches, one column wide if its file is called ``…-narrow``, and write it."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(NARROW if path.stem.endswith("-narrow") else width, height), layout="constrained")
        yield figure
        # A date in the file would make it differ on every run.
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
        encoded = BytesIO()  # written to a file directly, a PNG may be cut short on a full disk without an error
        figure.savefig(encoded, format=path.suffix[1:], metadata=metadata)
        with atomic_writing(path) as file:
            file.write(encoded.getbuffer())


def panels(figure: Figure, rows: int, columns: int, *, narrow: int = 1, **options: Any) -> list[Axes]:
    """Lay panels out in a grid; a figure of one column has ``narrow`` panels in a row and is higher."""
    if figure.get_figwidth() > NARROW:
        return list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    figure.set_figheight(0.9 * columns / narrow * figure.get_figheight())
    return list(figure.subplots(rows * columns // narrow, narrow, squeeze=False).flat)


def add_letters(axes: Iterable[Axes], size: float = STYLE["axes.titlesize"]) -> None:
    """Put a, b, c … in front of the titles of panels."""
    for letter, panel in zip("abcdefghijklmnopqrstuvwxyz", axes, strict=False):
        panel.set_title(rf"$\mathbf{{{letter}}}$   {panel.get_title('left')}", fontsize=size)


def draw_all(folder: Path, drawings: Mapping[str, Callable[[Path], None]], *, pdf: bool = False) -> list[Path]:
    """Draw pictures by name into a folder, as PNG, and as PDF for two columns of a paper and one; return the files."""
    endings = (".png", ".pdf", "-narrow.pdf") if pdf else (".png",)
    paths = {folder / f"{name}{ending}": draw for name, draw in drawings.items() for ending in endings}
    for path, draw in paths.items():
        draw(path)
    return list(paths)


def add_scale(figure: Figure, axes: Iterable[Axes], label: str, colours: Colormap = SEQUENTIAL) -> None:
    """Add the scale of a colour map from 0 to 1 beside axes, or below them in a figure of one column."""
    is_wide = figure.get_figwidth() > NARROW
    shape = {"aspect": 12 * figure.get_figheight(), "pad": 0.02} if is_wide else {"location": "bottom", "aspect": 40}
    figure.colorbar(ScalarMappable(Normalize(0, 1), colours), ax=[*axes], label=label, panchor=False, **shape)
