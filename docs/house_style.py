"""The style of the site's pictures: its font, a white or a transparent ground, one colour for text and lines."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fontTools.ttLib import TTFont
from matplotlib import font_manager
from matplotlib.figure import Figure

from tallybox import plotting

LIGHT, DARK = "#1a1a1a", "#e6e6e6"  # of text, by theme
INK = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "axes.titlecolor")
STYLE = {
    "font.family": ["Inter", "DejaVu Sans"],
    "mathtext.fontset": "custom",
    "mathtext.rm": "Inter",
    "mathtext.it": "Inter:italic",
    "mathtext.bf": "Inter:bold",
    "mathtext.cal": "Inter",
    "mathtext.fallback": "stixsans",
    "axes.facecolor": "none",
}


@contextmanager
def inter() -> Iterator[None]:
    """Let matplotlib, which reads TTF files only, draw with the site's font."""
    with tempfile.TemporaryDirectory() as folder:
        for path in (Path(__file__).parent / "assets" / "fonts").glob("*.woff"):
            font = TTFont(path)
            font.flavor = None
            font.save(made := Path(folder) / f"{path.stem}.ttf")
            font_manager.fontManager.addfont(made)
        with patch.dict(plotting.STYLE, STYLE):
            yield


def inked(ink: str) -> Any:
    """Return a context in which text and lines have one colour: light ones on no ground, for dark pages."""
    ground = {"figure.facecolor": "white" if ink == LIGHT else "none"}
    return patch.dict(plotting.STYLE, dict.fromkeys(INK, ink) | ground)


@contextmanager
def chart(path: Path, height: float, ink: str = LIGHT) -> Iterator[Figure]:
    """Yield a figure, with text and lines of one colour; it is narrow if its file is called so."""
    with inked(ink), plotting.picture(path, plotting.WIDE, height) as figure:
        yield figure
    shorten(path)


def shorten(path: Path) -> None:
    """Cut the coordinates of an SVG's lines to hundredths of a point."""
    if path.suffix == ".svg":
        text = path.read_text()
        path.write_text(re.sub(r'(?<=[ \n]d=")[^"]+', lambda line: re.sub(r"(\.\d\d)\d+", r"\1", line[0]), text))
