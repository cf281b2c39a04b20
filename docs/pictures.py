"""Draw the pictures of the docs from what the code computes: the one at the top, and the steps of both methods.

python docs/pictures.py        # or: make figures
"""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

import tallybox
from tallybox.explain.cats import COLOURS as CAT_COLOURS
from tallybox.explain.cats import draw_matrix, draw_proposals
from tallybox.explain.scenes import cats
from tallybox.plotting import BLUE, GREY, ORANGE, picture

FIGURES = Path(__file__).parent / "figures"
COLOURS = {"horse": ORANGE, "person": BLUE}


def draw_photo(figure: SubFigure) -> None:
    """Draw every box that the detector proposes for horses and persons, then what was counted."""
    counter = tallybox.PhotoCounter()
    path = tallybox.sample_photos()[1]
    (counted,) = counter.count_many([path])
    photo = tallybox.read_photo(path)
    proposed, result = figure.subplots(1, 2)
    proposed.imshow(photo.image)
    number = 0
    for name, colour in COLOURS.items():
        for x1, y1, x2, y2 in counted.detections.boxes[
            counted.detections.category_ids == counter.estimator.category_id(name)
        ].tolist():
            proposed.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=colour, lw=1.6))
            number += 1
    proposed.set_title(f"a detector's {number} boxes for horse and person")
    result.imshow(counter.draw(counted).crop((0, 0, *photo.size_wh)))  # without the counts in words below
    words = [f"{p.count} × {name} ({p.low} to {p.high})" for name in COLOURS for p in [counted.counts[name]]]
    result.set_title("tallybox: " + ", ".join(words))
    for axes in (proposed, result):
        axes.set(xticks=[], yticks=[], xlim=(90, 520), ylim=(345, 65))  # where the riders are
        axes.spines[:].set_visible(True)


def draw_idea(figure: SubFigure) -> None:
    """Draw the paper's example: proposals of cats, its matrices and the count."""
    proposals = cats()
    with torch.no_grad():
        trace = tallybox.Counter(max_objects=4).explain(torch.ones(4), proposals.boxes)
    scene, *matrices = figure.subplots(1, 4, width_ratios=(2.5, 1, 1, 1))
    draw_proposals(scene, proposals)
    named = (("A: both relevant", trace.relevance), ("D: how distant", trace.distance))
    count = f"C: √{trace.count_matrix.sum().item():.0f} = {trace.count.item():.0f} cats"
    for axes, (title, matrix) in zip(matrices, (*named, (count, trace.count_matrix)), strict=True):
        draw_matrix(axes, title, matrix)


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
    with picture(FIGURES / "overview.png", 11, 6.2) as figure:
        photo, idea = figure.subfigures(2, 1, height_ratios=(1.75, 1))
        draw_photo(photo)
        draw_idea(idea)
    draw_counter_steps(FIGURES / "counter_steps.svg")
    draw_presence_steps(FIGURES / "presence_steps.svg")


if __name__ == "__main__":
    main()
