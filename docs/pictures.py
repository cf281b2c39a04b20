"""Draw the pictures of the docs from what the code computes and from committed results.

    python docs/pictures.py                    # or: make figures
    python docs/pictures.py --pdf FOLDER       # the charts as PDF for papers, 6.75 and 3.25 inches wide

Charts have a white ground; the site turns them dark in dark mode (docs/assets/extra.css). README has dark variants of
its own.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from house_style import DARK, LIGHT, chart, inked, inter
from matplotlib.axes import Axes
from matplotlib.patches import Circle, Polygon, Rectangle
from PIL import Image

import tallybox
from tallybox import plotting
from tallybox.explain.scenes import cats
from tallybox.photos.outlines import draw_outlines, outlines_of
from tallybox.plotting import BLUE, GREEN, GREY, ORANGE, PURPLE, add_letters, panels
from tallybox.toy.figures import draw_toy_figures

DOCS = Path(__file__).parent
FIGURES, RESULTS = DOCS / "figures", DOCS / "results"
CATS = (BLUE, ORANGE, GREEN, PURPLE)
TRUTH = {"suitcase": 12, "car": 4, "horse": 2}  # COCO's labels of the sample photos
GROUPS = {"0": "0", "1": "1", "2-4": "2–4", "5+": "5 or more"}
# The picture at the top.


def draw_hero(path: Path, ink: str) -> None:
    """Draw a detector's boxes for suitcases, the boxes that were counted, and the count of three methods."""
    counter = tallybox.PhotoCounter()
    path_of_photo = tallybox.sample_photos()[2]
    photo = tallybox.read_photo(path_of_photo)
    (image,) = counter.detector.detect([photo])
    category = counter.estimator.category_id("suitcase")
    suitcases = image.of_category(category)
    explanation = counter.explain(path_of_photo)["suitcase"]
    prediction = explanation.prediction
    drawn = draw_outlines(
        photo, outlines_of(image, {"suitcase": explanation}), {"suitcase": prediction}, with_caption=False
    )
    counts = {
        "Sum of the scores": float(image.scores[explanation.indices].sum()),
        "Tuned NMS": counter.estimator.fitted.baselines["nms"]["exact"].count(image, category),
        "tallybox": prediction.count,
    }
    with tempfile.TemporaryDirectory() as folder, inked(ink), patch.dict(plotting.STYLE, {"savefig.dpi": 160}):
        with plotting.picture(Path(folder) / "hero.png", 7.5, 4.4) as figure:
            figure.set_layout_engine("none")
            boxes, result = (figure.add_axes((x, 0.26, 0.494, 0.675)) for x in (0, 0.506))
            for axes, picture in ((boxes, photo.image), (result, drawn)):
                axes.imshow(picture, aspect="auto")
                axes.set_axis_off()
            for x1, y1, x2, y2 in suitcases.boxes.tolist():
                boxes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec="white", lw=0.9))
            interval = f"90 %: {prediction.low}–{prediction.high}"
            figure.text(0, 0.955, f"{len(suitcases)} overlapping boxes …", size=13, weight="bold")
            figure.text(0.506, 0.955, f"… tallybox counts {prediction.count} ({interval})", size=13, weight="bold")
            draw_methods(figure.add_axes((0, 0, 1, 0.245)), counts, prediction, ink)
        Image.open(Path(folder) / "hero.png").save(path, quality=80, method=6)


def draw_methods(axes: Axes, counts: dict[str, float], prediction: Any, ink: str) -> None:
    """Draw the count of three methods on a line with the truth."""
    truth = TRUTH["suitcase"]
    axes.plot([truth] * 2, [-0.45, 2.4], color=ink, lw=1.6)
    axes.text(truth, -0.6, f"truth: {truth}", ha="center", va="bottom", size=10.5)
    for y, (name, value) in enumerate(counts.items()):
        is_ours = name == "tallybox"
        axes.plot([5, 23], [y, y], color=GREY, lw=0.5, alpha=0.6)
        if is_ours:
            ends = [prediction.low, prediction.high]
            axes.plot(ends, [y, y], color=ORANGE, lw=9, alpha=0.4, solid_capstyle="round")
        axes.plot(value, y, "o", color=ORANGE if is_ours else "#8a8a8a", ms=8)
        weight = "bold" if is_ours else "normal"
        axes.text(-4, y, name, va="center", weight=weight, size=10.5)
        axes.text(4.4, y, f"{value:.3g}", va="center", ha="right", weight="bold", size=10.5)
        covers = prediction.low <= truth <= prediction.high
        note = f"; {prediction.low}–{prediction.high} covers it" if is_ours and covers else ""
        axes.text(23.6, y, f"off by {abs(value - truth):.2g}{note}", va="center", size=10.5)
    axes.set(xlim=(-4, 34), ylim=(2.6, -1.3))
    axes.set_axis_off()


# The steps of both methods.


def draw_cat(axes: Axes, x: float, y: float, colour: str, size: float = 4.2) -> None:
    """Draw the head of a cat."""
    for side in (-1, 1):
        ear = [(x + side * size * 0.95, y - size * 1.25), (x + side * size * 0.15, y - size * 0.8)]
        axes.add_patch(Polygon([*ear, (x + side * size * 0.98, y - size * 0.1)], fc=colour, ec="none"))
    axes.add_patch(Circle((x, y), size, fc=colour, ec="none"))
    for side in (-1, 1):
        axes.add_patch(Circle((x + side * size * 0.4, y - size * 0.15), size * 0.13, fc="white", ec="none"))
        for tilt in (0.15, 0.4):
            whisker = [x + side * size * 0.35, x + side * size * 1.35], [y + size * 0.3, y + size * tilt]
            axes.plot(*whisker, color=GREY, lw=0.5)


def draw_counter_steps(path: Path) -> None:
    """Draw on the boxes how the counter removes the edges that a duplicate added."""
    with torch.no_grad():
        trace = tallybox.Counter(max_objects=4).explain(torch.ones(4), cats())
    steps = (
        ("Four boxes, three cats", None),
        (r"$A$: every pair is joined, $\sqrt{16} = 4$", trace.relevance),
        (r"$Ã$: edges within a cat are removed", trace.deduplicated),
        (r"$C$: duplicates share their edges, $\sqrt{9} = 3$", trace.count_matrix),
    )
    assert [round(edges.sum().item()) for _, edges in steps[1:]] == [16, 10, 9]
    boxes = cats().tolist()
    vertices = ((6.5, 8.5), (17.5, 15.5), (37, 9.5), (61, 13))
    with chart(path, 2.7) as figure:
        for axes, (title, edges) in zip(panels(figure, 2, 2), steps, strict=True):
            for number, (x1, y1, x2, y2) in enumerate(boxes):
                grow = 0.7 * boxes[:number].count(boxes[number])
                corner, sides = (x1 - grow, y1 - grow), (x2 - x1 + 2 * grow, y2 - y1 + 2 * grow)
                style, alpha = "--" if grow else "-", 1 if edges is None else 0.55
                axes.add_patch(Rectangle(corner, *sides, fill=False, ec=CATS[number], lw=1.3, ls=style, alpha=alpha))
                if not grow:
                    fur = "#b9a48c" if edges is None else "#e9e3db"
                    draw_cat(axes, (x1 + x2) / 2, (y1 + y2) / 2 + 1, fur)
            if edges is None:
                for (x1, y1, x2, y2), label in zip(boxes[1:], ("1 and 2", "3", "4"), strict=True):
                    axes.text((x1 + x2) / 2, y1 - 1.2, label, ha="center", va="bottom", weight="bold")
                    del x1, y2
            else:
                draw_edges(axes, vertices, edges)
            axes.set(xlim=(-1, 73), ylim=(22, -1.5), aspect="equal", title=title)
            axes.set_axis_off()
        add_letters(figure.axes)


def draw_edges(axes: Axes, vertices: Any, edges: torch.Tensor) -> None:
    """Draw a matrix of edges as a graph on the boxes: thick and full for 1, thin for less, loops above a vertex."""
    for i, (x, y) in enumerate(vertices):
        for j in range(i, len(vertices)):
            weight = edges[i, j].item()
            if weight < 0.01:
                continue
            look = {"lw": 1.8 * weight, "alpha": 0.35 + 0.65 * weight}
            if i == j:
                axes.add_patch(Circle((x, y - 2.7), 2.2, fill=False, ec=GREY, **look))
            else:
                axes.plot([x, vertices[j][0]], [y, vertices[j][1]], color=GREY, zorder=1.5, **look)
        axes.scatter(x, y, s=70, color=CATS[i], zorder=3)
        axes.text(x, y, str(i + 1), color="white", ha="center", va="center_baseline", weight="bold", size=7, zorder=4)


def draw_counter_matrices(path: Path) -> None:
    """Draw the matrices of the same scene."""
    with torch.no_grad():
        trace = tallybox.Counter(max_objects=4).explain(torch.ones(4), cats())
    names = {"A": trace.relevance, "D": trace.distance, "Ã": trace.deduplicated, "C": trace.count_matrix}
    with chart(path, 2.25) as figure:
        for axes, (name, matrix) in zip(panels(figure, 1, 4, narrow=2), names.items(), strict=True):
            axes.pcolormesh(matrix.numpy(), cmap="Blues", vmin=0, vmax=1.3, edgecolors="white", lw=1)
            for (i, j), value in np.ndenumerate(matrix.numpy()):
                colour = "white" if value > 0.6 else "black"
                axes.text(j + 0.5, i + 0.5, f"{value:.2g}", ha="center", va="center_baseline", color=colour)
            ticks = np.arange(4) + 0.5
            axes.set(aspect="equal", ylim=(4, 0), xticks=ticks, yticks=ticks, title=f"${name}$", xlabel="box")
            axes.set(xticklabels=range(1, 5), yticklabels=range(1, 5))
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
        figure.axes[0].set_ylabel("box")
        add_letters(figure.axes)


def draw_presence_steps(path: Path) -> None:
    """Draw how presence counting turns scores into presences and these into a distribution of counts."""
    boxes = torch.tensor([[4.0, 4, 30, 22], [7, 5, 32, 23], [40, 5, 60, 21], [57, 3, 73, 18]])
    scores = torch.tensor([0.9, 0.7, 0.8, 0.4])
    with torch.no_grad():
        layer = tallybox.PresenceCounter(max_objects=4)
        presence = layer.explain(scores, boxes).presence.reshape(-1)
        distribution = layer.distribution(scores, boxes)[0]
    with chart(path, 2.1) as figure:
        scene, bars, counts = panels(figure, 1, 3, width_ratios=(1.5, 1, 1))
        labels = ((4, 2.8), (32, 27), (40, 3.8), (73, 22))
        for i, (x1, y1, x2, y2) in enumerate(boxes.tolist()):
            scene.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=CATS[i], lw=1.6))
            side = "right" if i in (1, 3) else "left"
            scene.text(*labels[i], f"{i + 1}: {scores[i]:.1f}", color=CATS[i], weight="bold", ha=side)
        scene.set(
            xlim=(2, 75),
            ylim=(29, -1),
            xticks=[],
            yticks=[],
            aspect="equal",
            anchor="N",
            title="Four boxes and their scores",
        )
        scene.set_axis_off()
        places = np.arange(4)
        bars.bar(places - 0.2, scores, 0.38, color="#c4c4c4", label="score")
        bars.bar(places + 0.2, presence, 0.38, color=CATS, label="presence")
        bars.set(xticks=places, xticklabels=range(1, 5), xlabel="box", ylim=(0, 1.05), ylabel="score (grey), presence")
        bars.set_title("A duplicate loses its presence")
        for i, value in enumerate(presence.tolist()):
            bars.text(i + 0.2, value + 0.02, f"{value:.2f}", ha="center", size=6.5)
        counts.bar(range(5), distribution, color=BLUE)
        counts.set(xticks=range(5), xlabel="number of objects", ylim=(0, 1.05), ylabel="probability")
        counts.set_title(f"Mean {presence.sum().item():.2f} (scores: {scores.sum().item():.1f})")
        for i, value in enumerate(distribution.tolist()):
            counts.text(i, value + 0.02, f"{value:.2f}", ha="center", size=6.5)
        add_letters(figure.axes)


# What a count on a sample photo looks like.


def draw_distributions(path: Path) -> None:
    """Draw how probable each count is for three categories of the sample photos, with intervals and truth."""
    counter = tallybox.PhotoCounter()
    buses, riders, lobby = (counter.count(photo) for photo in tallybox.sample_photos())
    rows = {"horse": riders, "car": buses, "suitcase": lobby}
    with chart(path, 2.2) as figure:
        for axes, (name, counts) in zip(panels(figure, 1, 3), rows.items(), strict=True):
            found = counts[name]
            values = 100 * np.asarray(found.probabilities)
            numbers = np.arange(len(values))
            inside = (numbers >= found.low) & (numbers <= found.high)
            axes.bar(numbers, values, color=np.where(inside, ORANGE, "#b5b5b5"), width=0.8)
            axes.plot([TRUTH[name]] * 2, [0, values.max() * 1.06], color=plotting.STYLE["text.color"], lw=1.4)
            axes.text(TRUTH[name], values.max() * 1.08, f"truth: {TRUTH[name]}", ha="center", size=7.5)
            title = f"{found.count} {name}s (90 %: {found.low}–{found.high})"
            axes.set(title=title, xlabel=f"number of {name}s", ylim=(0, values.max() * 1.22))
            ticks = range(0, len(values), 2)
            last = len(values) - 1
            axes.set_xticks(ticks, [f"{tick}+" if tick == last else str(tick) for tick in ticks])
        figure.axes[0].set_ylabel("probability, %")
        add_letters(figure.axes)


# Charts of results.


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file with a JSON object a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def compared() -> dict[str, Any]:
    """Read what research/compared.py measured."""
    methods: dict[str, Any] = json.loads((RESULTS / "estimator" / "compared.json").read_text())["methods"]
    return methods


def draw_by_count(path: Path, ink: str = LIGHT) -> None:
    """Draw accuracy and mean error of tuned NMS and tallybox by true count."""
    methods = compared()
    with chart(path, 2.2, ink) as figure:
        keys = (
            ("exact_by_true_count", "Exact counts", "share, %", 100),
            ("mae_by_true_count", "Mean error", "objects", 1),
        )
        for axes, (key, title, label, factor) in zip(panels(figure, 1, 2), keys, strict=True):
            for name, colour, shift in (("NMS", "#8a8a8a", -0.2), ("tallybox", ORANGE, 0.2)):
                values = [factor * methods[name][key][group] for group in GROUPS]
                bars = axes.bar(
                    np.arange(4) + shift, values, 0.38, color=colour, label=name.replace("NMS", "tuned NMS")
                )
                axes.bar_label(bars, fmt="%.0f" if factor == 100 else "%.2f", size=6.5, padding=1, color=ink)
            axes.set(title=title, ylabel=label, xlabel="true count", xticks=range(4), xticklabels=GROUPS.values())
            axes.margins(y=0.1)
        figure.axes[1].legend(loc="upper left", labelcolor=ink)
        add_letters(figure.axes)


def draw_methods_compared(path: Path) -> None:
    """Draw exact counts and mean error of every method that was measured."""
    methods = compared()
    names = sorted(methods, key=lambda name: -methods[name]["mae"])
    with chart(path, 1.75) as figure:
        left, right = panels(figure, 1, 2, sharey=True)
        for axes, key, factor, form in ((left, "exact", 100, "%.0f %%"), (right, "mae", 1, "%.2f")):
            values = [factor * methods[name][key] for name in names]
            bars = axes.barh(names, values, 0.62, color=[ORANGE if name == "tallybox" else "#8a8a8a" for name in names])
            axes.bar_label(bars, fmt=form, padding=3, size=7.5)
            axes.margins(x=0.16)
            axes.tick_params(axis="y", length=0)
        left.set(title="Exact counts (more is better)", xlabel="share of pairs, %")
        right.set(title="Mean error (less is better)", xlabel="objects")
        add_letters(figure.axes)


def draw_learning_curve(path: Path) -> None:
    """Draw exact counts and mean error over the number of labelled photos."""
    results = [r for r in read_lines(RESULTS / "estimator" / "results.jsonl") if r["learned_from"] == "first"]
    photos = [result["photos"] for result in results]
    lines = (
        ("estimator", "tallybox", ORANGE),
        ("nms_per_category", "NMS, tuned per category", BLUE),
        ("nms", "tuned NMS", GREY),
    )
    with chart(path, 2.4) as figure:
        metrics = (("exact", "Exact counts", "share, %", 100), ("mae", "Mean error", "objects", 1))
        for axes, (metric, title, label, factor) in zip(panels(figure, 1, 2), metrics, strict=True):
            for key, name, colour in lines:
                values = [factor * result[key][metric] for result in results]
                axes.plot(photos, values, "o-", color=colour, ms=3.5, lw=1.3, label=name)
            axes.set(xscale="log", xlabel="labelled photos", ylabel=label, title=title)
            axes.set_xticks(photos, [f"{number:,}" for number in photos])
            axes.minorticks_off()
            axes.grid(axis="y", lw=0.3)
        figure.axes[0].legend(loc="lower right", labelcolor="linecolor", handlelength=0)
        add_letters(figure.axes)


def draw_reliability(path: Path) -> None:
    """Draw how often answers are right by their probability, and the coverage of intervals around 90 %."""
    found = compared()["tallybox"]
    with chart(path, 2.5) as figure:
        left, right = panels(figure, 1, 2)
        left.plot([0, 100], [0, 100], color=GREY, lw=0.7)
        mean, is_right, number = np.array([row for row in found["reliability"] if row[2] >= 20]).T
        share = is_right / number
        left.errorbar(
            100 * mean, 100 * share, 100 * standard_error(share, number), fmt="o", color=ORANGE, ms=4, capsize=2
        )
        left.set(xlim=(0, 100), ylim=(0, 100), xlabel="probability of the most probable count, %")
        left.set(ylabel="answers that are right, %", title="Probabilities")
        covered, number = np.array([*found["covered_by_predicted_count"].values()]).T
        covered, number = np.append(covered, covered.sum()), np.append(number, number.sum())
        share = covered / number
        right.axhline(90, color=GREY, lw=0.7)
        right.errorbar(
            range(5), 100 * share, 200 * standard_error(share, number), fmt="o", color=ORANGE, ms=4, capsize=2
        )
        for x, value in enumerate(100 * share):
            right.text(x + 0.12, value, f"{value:.1f}", va="center", size=7)
        right.set_xticks(range(5), [*GROUPS.values(), "all"])
        right.set(
            ylim=(80, 100), yticks=range(80, 101, 5), xlim=(-0.4, 4.6), xlabel="predicted count", title="90 % intervals"
        )
        right.set_ylabel("cover the true count, %")
        add_letters(figure.axes)


def standard_error(share: Any, number: Any) -> Any:
    """Return the standard error of shares."""
    return np.sqrt(share * (1 - share) / number)


def draw_speed(path: Path) -> None:
    """Draw how many times as fast as plain PyTorch the fused layers are, from the table of the page on speed."""
    page = (RESULTS / "speed.md").read_text()
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in page.splitlines()
        if line.startswith(("| 2 cores", "| NVIDIA"))
    ]
    rows = [row for row in rows if row[1] in ("counter", "presence")]
    machines = {"2 cores": "Two CPU cores", "NVIDIA": "NVIDIA H200"}
    with chart(path, 3.3) as figure:
        for axes, (start, title) in zip(panels(figure, 1, 2), machines.items(), strict=True):
            names, values, colours = [], [], []
            for row in rows:
                if row[0].startswith(start):
                    kept = f", {row[3]} kept" if row[1] == "counter" and not row[2].endswith(row[3]) else ""
                    names.append(f"{row[1]} {row[2]}{kept}")
                    values.append(float(row[6]))
                    colours.append(BLUE if row[1] == "counter" else ORANGE)
            bars = axes.barh(names, values, 0.65, color=colours)
            axes.bar_label(bars, fmt="%.0f×", padding=2, size=6.5)
            axes.invert_yaxis()
            axes.margins(x=0.15)
            axes.tick_params(axis="y", length=0, labelsize=6.5)
            axes.set(title=title, xlabel="times as fast as plain PyTorch")
        add_letters(figure.axes)


CHARTS: dict[str, Callable[[Path], None]] = {
    "counter_steps": draw_counter_steps,
    "counter_matrices": draw_counter_matrices,
    "presence_steps": draw_presence_steps,
    "distributions": draw_distributions,
    "by_count": draw_by_count,
    "methods": draw_methods_compared,
    "learning_curve": draw_learning_curve,
    "reliability": draw_reliability,
    "speed": draw_speed,
}


# The paper's toy task.


def draw_toy() -> None:
    """Draw again the figures of both sweeps that are in the repository, with few colours: a third of the size."""
    for sweep in ("easy", "hard"):
        folder = RESULTS / "toy" / sweep
        kept = {path.name for path in (folder / "figures").glob("*.png")}
        for path in draw_toy_figures(folder):
            if path.name not in kept:
                path.unlink()
            elif path.suffix == ".png":
                Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


def pdfs(folder: Path, name: str) -> list[Path]:
    """Return the files of a chart for papers."""
    return [folder / f"{name}.pdf", folder / f"{name}-narrow.pdf"]


def main() -> None:
    """Draw all of them, or the charts that were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdf", type=Path, metavar="FOLDER")
    parser.add_argument("--only", choices=["hero", "toy", *CHARTS], action="append", help="may be repeated")
    given = parser.parse_args()
    with inter():
        for name, draw in CHARTS.items():
            if given.only is None or name in given.only:
                for path in pdfs(given.pdf, name) if given.pdf else [FIGURES / f"{name}.svg"]:
                    draw(path)
        if given.pdf is None and (given.only is None or "by_count" in given.only):
            draw_by_count(FIGURES / "by_count-dark.svg", DARK)
        if given.pdf is None and (given.only is None or "hero" in given.only):
            draw_hero(FIGURES / "hero.webp", LIGHT)
            draw_hero(FIGURES / "hero-dark.webp", DARK)
        if given.pdf is None and (given.only is None or "toy" in given.only):
            draw_toy()


if __name__ == "__main__":
    main()
