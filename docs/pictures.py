"""Draw the pictures of the docs from what the code computes: the one at the top, and the steps of both methods.

python docs/pictures.py        # or: make figures
"""

from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patches import Circle, Rectangle
from PIL import Image
from torch import Tensor

import tallybox
from tallybox.explain.cats import COLOURS as CAT_COLOURS
from tallybox.explain.cats import draw_proposals
from tallybox.explain.scenes import cats
from tallybox.plotting import BLUE, GREY, ORANGE, picture

FIGURES = Path(__file__).parent / "figures"
YELLOW = "#FFB000"  # seen well on photos
SUITCASES = 12  # in COCO's labels of the photo


def draw_hero(path: Path) -> None:
    """Draw a detector's boxes for suitcases, the boxes that were counted, and the count of three methods."""
    counter = tallybox.PhotoCounter()
    path_of_photo = tallybox.sample_photos()[2]
    photo = tallybox.read_photo(path_of_photo)
    (image,) = counter.detector.detect([photo])
    suitcases = image.of_category(counter.estimator.category_id("suitcase"))
    explanation = counter.explain(path_of_photo)["suitcase"]
    prediction = explanation.prediction
    order = explanation.presence.argsort()[::-1][: prediction.count]
    counted = [(image.boxes[explanation.indices[i]], explanation.presence[i]) for i in order]
    category = counter.estimator.category_id("suitcase")
    suppressed = counter.estimator.fitted.baselines["nms"]["exact"].count(image, category)
    with picture(path, 11, 6.1) as figure:
        above, below = figure.subfigures(2, 1, height_ratios=(4, 1.1))
        boxes, result = above.subplots(1, 2)
        for axes in (boxes, result):
            axes.imshow(photo.image)
            axes.set_axis_off()
        for x1, y1, x2, y2 in suitcases.boxes.tolist():
            boxes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec="white", lw=1.1))
        for number, ((x1, y1, x2, y2), presence) in enumerate(counted, start=1):
            style = "-" if presence >= 0.5 else "--"
            result.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=YELLOW, lw=2, ls=style))
            badge = {
                "boxstyle": "circle,pad=0.2",
                "fc": ORANGE if presence >= 0.5 else "white",
                "ec": "black",
                "lw": 0.7,
            }
            result.text(x1 + 12, y1 + 14, str(number), fontsize=7, ha="center", va="center", bbox=badge)
        titles = {"loc": "left", "fontweight": "bold"}
        boxes.set_title(f"The detector proposes {len(suitcases)} overlapping suitcases …", **titles)
        interval = f"90 % interval: {prediction.low} to {prediction.high}"
        result.set_title(f"… tallybox counts {prediction.count} ({interval})", **titles)
        draw_comparison(below, float(image.scores[explanation.indices].sum()), suppressed, prediction)


def draw_comparison(figure: SubFigure, total: float, suppressed: float, prediction: Any) -> None:
    """Draw the count of three methods on a line with the truth."""
    axes = figure.subplots()
    rows = {"Sum of the scores": total, "NMS, tuned thresholds": suppressed, "tallybox": prediction.count}
    axes.plot([SUITCASES] * 2, [-0.6, 2.5], color="black", lw=1.5)
    for y, (name, value) in enumerate(rows.items()):
        is_ours = name == "tallybox"
        if is_ours:
            axes.plot([prediction.low, prediction.high], [y, y], color=ORANGE, lw=7, alpha=0.35, solid_capstyle="round")
        axes.plot(value, y, "o", color=ORANGE if is_ours else GREY)
        weight = "bold" if is_ours else "normal"
        axes.text(-0.5, y, name, va="center", fontweight=weight)
        axes.text(4.9, y, f"{value:.3g}", va="center", ha="right", fontweight=weight)
        covers = prediction.low <= SUITCASES <= prediction.high
        note = "; the interval covers the truth" if is_ours and covers else ""
        axes.text(24, y, f"off by {abs(value - SUITCASES):.2g}{note}", va="center", color=GREY)
    axes.text(SUITCASES, -0.95, f"truth: {SUITCASES}", ha="center", fontsize=9)
    axes.set(xlim=(-0.5, 33), ylim=(2.6, -1.4))
    axes.set_axis_off()


def draw_graph(axes: Axes, title: str, centres: Tensor, edges: Tensor) -> None:
    """Draw a matrix of edges as a graph: lines between proposals, circles for edges to themselves, thick for 1."""
    x, y = centres.T.tolist()
    for i in range(len(centres)):
        for j in range(i, len(centres)):
            weight = edges[i, j].item()
            if weight < 0.01:
                continue
            if i == j:
                axes.add_patch(Circle((x[i], y[i] - 3.2), 2.6, fill=False, ec=GREY, lw=3 * weight))
            else:
                axes.plot([x[i], x[j]], [y[i], y[j]], color=GREY, lw=3 * weight, zorder=1)
        axes.scatter(x[i], y[i], s=130, color=CAT_COLOURS[i], zorder=2)
        axes.text(x[i], y[i], str(i + 1), color="white", ha="center", va="center", fontweight="bold", fontsize=8)
    axes.set(xlim=(0, 76), ylim=(24, 0), xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(True)
    axes.set_title(title)


def draw_counter_steps(path: Path) -> None:
    """Draw how the paper's component removes the edges that a duplicate added."""
    proposals = cats()
    with torch.no_grad():
        trace = tallybox.Counter(max_objects=4).explain(torch.ones(4), proposals.boxes)
    centres = torch.tensor([[12.0, 19], [26, 10], [44, 20], [62, 10]])  # about where the boxes are, copies side by side
    with picture(path, 11, 4.4) as figure:
        (scene, all_edges), (cut, shared) = figure.subplots(2, 2)
        draw_proposals(scene, proposals)
        for axes, title, edges in (
            (all_edges, "A: all joined, √{} = 4, the sum of the weights", trace.relevance),
            (cut, "Ã: edges within a cat removed, {} left", trace.deduplicated),
            (shared, "C: copies share edges, loops are back, √{} = 3", trace.count_matrix),
        ):
            draw_graph(axes, title.format(f"{edges.sum().item():.0f}"), centres, edges)


def draw_presence_steps(path: Path) -> None:
    """Draw how presence counting turns scores into presences and these into a distribution of counts."""
    boxes = torch.tensor([[4.0, 4, 30, 22], [7, 5, 32, 23], [40, 5, 60, 21], [57, 3, 73, 18]])
    scores = torch.tensor([0.9, 0.7, 0.8, 0.4])
    with torch.no_grad():
        layer = tallybox.PresenceCounter(max_objects=4)
        trace = layer.explain(scores, boxes)
        distribution = layer.distribution(scores, boxes)[0]
    presence = trace.presence.reshape(-1)
    with picture(path, 11, 2.9) as figure:
        scene, bars, counts = figure.subplots(1, 3, width_ratios=(1.6, 1, 1))
        for i, (x1, y1, x2, y2) in enumerate(boxes.tolist()):
            scene.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=CAT_COLOURS[i], lw=2.5))
            across, below = (x2 - 8, y2 + 3) if i == 1 else (x1 + 1, y1 + 4)
            scene.text(across, below, f"{i + 1}: {scores[i]:.1f}", color=CAT_COLOURS[i], fontweight="bold")
        scene.set(
            xlim=(0, 76), ylim=(28, 0), xticks=[], yticks=[], aspect="equal", title="four boxes with their scores"
        )
        scene.spines[:].set_visible(True)
        places = torch.arange(4)
        bars.bar(places - 0.2, scores, 0.38, color="#cccccc", label="score")
        bars.bar(places + 0.2, presence, 0.38, color=CAT_COLOURS, label="presence")
        bars.set(xticks=range(4), xticklabels=["1", "2", "3", "4"], ylim=(0, 1), title="a copy loses its presence")
        for i, value in enumerate(presence.tolist()):
            bars.text(i + 0.2, value + 0.02, f"{value:.2f}", ha="center", fontsize=8)
        counts.bar(range(5), distribution, color=BLUE)
        title = f"mean {presence.sum().item():.2f}, sum of scores {scores.sum().item():.1f}"
        counts.set(xticks=range(5), ylim=(0, 1), title=title)
        for i, value in enumerate(distribution.tolist()):
            counts.text(i, value + 0.02, f"{value:.2f}", ha="center", fontsize=8)


def main() -> None:
    """Draw all of them."""
    draw_hero(FIGURES / "hero.png")
    Image.open(FIGURES / "hero.png").convert("RGB").quantize(256).save(FIGURES / "hero.png")  # a third of the size
    draw_counter_steps(FIGURES / "counter_steps.svg")
    draw_presence_steps(FIGURES / "presence_steps.svg")


if __name__ == "__main__":
    main()
