"""The style of every figure: one font size, a colour-blind safe palette, PNG, SVG or PDF."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure

from tallybox.errors import InputError
from tallybox.files import atomic_writing

# Okabe and Ito's palette, safe for all common kinds of colour vision.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"

# For a parameter from 0 to 1, also safe for all common kinds of colour vision.
SEQUENTIAL = colormaps["viridis"]

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.fonttype": "path",  # the same letters on every machine
    "svg.hashsalt": "tallybox",  # the same file for the same picture
    "savefig.dpi": 110,
}


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Yield a figure of a size in inches to draw on, and write it to ``path`` at the end."""
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise InputError(f"Cannot draw {path.name}: the name must end in .png, .svg or .pdf.")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        # A date in the file would make it differ on every run.
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
        with atomic_writing(path, "wb") as file:
            figure.savefig(file, format=path.suffix[1:], metadata=metadata)


def draw_all(folder: Path, drawings: Mapping[str, Callable[[Path], None]]) -> list[Path]:
    """Draw pictures by name into a folder, as PNG; return the files."""
    paths = {name: folder / f"{name}.png" for name in drawings}
    for name, draw in drawings.items():
        draw(paths[name])
    return list(paths.values())


def add_scale(figure: Figure, axes: Iterable[Axes], label: str, colours: Colormap = SEQUENTIAL) -> None:
    """Add the scale of a colour map from 0 to 1 beside axes."""
    figure.colorbar(ScalarMappable(Normalize(0, 1), colours), ax=[*axes], label=label)
