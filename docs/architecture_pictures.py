"""Draw the two pictures of docs/architecture.md: which package imports which, as the code has it, and how data flow.

python docs/architecture_pictures.py        # or: make figures
"""

from pathlib import Path

import grimp
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from tallybox.plotting import BLUE, GREY, ORANGE, picture

FIGURES = Path(__file__).parent / "figures"
BASE = "base"  # all modules that are single files

# Where each package stands, and what it does.
PACKAGES = {
    "cli": (5.0, 9, "one file a command"),
    "bench": (1.0, 8, "measurements"),
    "figures": (3.5, 8, "pictures"),
    "report": (6.1, 8, "the static page"),
    "service": (8.6, 8, "HTTP, explorer page"),
    "drawing": (6.1, 7, "what both pages draw"),
    "ask": (6.1, 6, "a question about a photo"),
    "toy": (1.0, 5, "the toy task"),
    "vqa": (4.4, 5, "the VQA model"),
    "photos": (8.6, 5, "photo → counts"),
    "estimator": (8.6, 4, "boxes → counts"),
    "detections": (8.6, 3, "boxes, readers, labels"),
    "compat": (3.4, 3, "the published module"),
    "counter": (2.2, 2, "the paper's component"),
    "presence": (5.4, 2, "its successor"),
    "kernels": (3.6, 1, "shared by both backends"),
    BASE: (5.0, 0, "errors, checks, boxes, activation, files, json_files, runs, devices, distributed"),
}

# Where each value stands, and what makes it from the one before.
VALUES = {
    "photo file": (0.7, 3),
    "Photo": (3.0, 3),
    "Detections": (5.3, 3),
    "CountPrediction": (7.6, 3),
    "JSON, CSV,\ntable, picture": (9.9, 3),
    "file of\ndetections": (0.7, 4),
    "TrueCounts\n(labels)": (3.0, 4),
    "estimator file": (7.6, 4),
    "attention, boxes": (0.7, 2),
    "list of images": (3.8, 2),
    "features": (6.9, 2),
    "gradients": (9.9, 2),
    "questions,\nregion features": (0.7, 1),
    "splits, store": (3.0, 1),
    "checkpoint": (5.3, 1),
    "answers": (7.6, 1),
    "scores": (9.9, 1),
    "boxes on\na page": (0.7, 0),
    "Counting": (4.2, 0),
    "JSON": (7.0, 0),
    "page": (9.9, 0),
}
FLOWS = (
    ("photo file", "Photo", "images"),
    ("Photo", "Detections", "detector"),
    ("Detections", "CountPrediction", "inference"),
    ("CountPrediction", "JSON, CSV,\ntable, picture", "cli"),
    ("file of\ndetections", "Detections", "readers"),
    ("TrueCounts\n(labels)", "estimator file", "fit"),
    ("Detections", "estimator file", ""),
    ("estimator file", "CountPrediction", ""),
    ("attention, boxes", "list of images", "layout"),
    ("list of images", "features", "operator"),
    ("features", "gradients", "saved state"),
    ("questions,\nregion features", "splits, store", "prepare"),
    ("splits, store", "checkpoint", "train"),
    ("checkpoint", "answers", "predict"),
    ("answers", "scores", "score"),
    ("boxes on\na page", "Counting", "component or estimator"),
    ("Counting", "JSON", "FastAPI"),
    ("JSON", "page", "assets"),
)


def imports() -> set[tuple[str, str]]:
    """Return which package imports which, without what follows from other imports."""
    graph = grimp.build_graph("tallybox")
    edges = {
        (_package(module), _package(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    }
    edges = {edge for edge in edges if len({*edge, "tallybox"}) == 3}  # not of the top level, nor within a package
    reachable = set(edges)
    while longer := {(a, d) for a, b in reachable for c, d in edges if b == c} - reachable:
        reachable |= longer
    return {(a, c) for a, c in edges if not any((a, b) in edges and (b, c) in reachable for b in PACKAGES)}


def _package(module: str) -> str:
    name = module.split(".")[1] if "." in module else module
    return "cli" if name == "__main__" else name if name in PACKAGES or name == "tallybox" else BASE


def draw_packages(path: Path) -> None:
    """Draw the packages, each above those that it imports."""
    with picture(path, 9, 7.6) as figure:
        axes = figure.subplots()
        for importer, imported in sorted(imports()):
            (x, y, _), (to_x, to_y, _) = PACKAGES[importer], PACKAGES[imported]
            _draw_arrow(axes, (x, y - 0.3), (to_x, to_y + 0.3), curve=0.0 if y - to_y < 3 else 0.12)
        for name, (x, y, job) in PACKAGES.items():
            width = 8.4 if name == BASE else 2.3
            _draw_box(axes, x, y, width, 0.56)
            axes.text(
                x, y + 0.11, "single files" if name == BASE else name, ha="center", va="center", fontweight="bold"
            )
            axes.text(x, y - 0.13, job, ha="center", va="center", fontsize=8, color=GREY)
        _finish(axes, (-0.4, 10.0), (-0.5, 9.5))


def draw_data(path: Path) -> None:
    """Draw how values become other values."""
    with picture(path, 9, 4.6) as figure:
        axes = figure.subplots()
        for source, target, label in FLOWS:
            (x, y), (to_x, to_y) = VALUES[source], VALUES[target]
            if y == to_y:
                start, end = (x + 0.75, y), (to_x - 0.75, to_y)
            else:
                down = y > to_y
                start, end = (x, y - 0.28 if down else y + 0.28), (to_x, to_y + 0.28 if down else to_y - 0.28)
            _draw_arrow(axes, start, end)
            axes.text(
                (start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.1, label, ha="center", fontsize=8, color=ORANGE
            )
        for name, (x, y) in VALUES.items():
            _draw_box(axes, x, y, 1.5, 0.54)
            axes.text(x, y, name, ha="center", va="center", fontsize=8)
        _finish(axes, (-0.2, 10.8), (-0.4, 4.4))


def _draw_box(axes: Axes, x: float, y: float, width: float, height: float) -> None:
    corner = (x - width / 2 + 0.05, y - height / 2 + 0.05)
    style = "round,pad=0.05,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, width - 0.1, height - 0.1, boxstyle=style, fc="white", ec=BLUE, zorder=2))


def _draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], curve: float = 0.0) -> None:
    style = {"arrowstyle": "-|>", "color": GREY, "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops={**style, "connectionstyle": f"arc3,rad={curve}"}, zorder=1)


def _finish(axes: Axes, x_limits: tuple[float, float], y_limits: tuple[float, float]) -> None:
    axes.set(xlim=x_limits, ylim=y_limits)
    axes.set_axis_off()


def main() -> None:
    """Draw both."""
    draw_packages(FIGURES / "packages.svg")
    draw_data(FIGURES / "data.svg")


if __name__ == "__main__":
    main()
