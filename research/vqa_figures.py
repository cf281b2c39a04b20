"""Tables and figures of docs/results/vqa: scores, learning curves, learned activations, examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tallybox.plotting import BLUE, GREEN, GREY, ORANGE, picture
from tallybox.toy.figures import draw_presence, label_presence
from tallybox.vqa import figures as vqa
from tallybox.vqa.evaluation import format_score

Results = list[dict[str, Any]]

TITLES = {"baseline": "Baseline", "nms": "+ NMS", "counter": "+ counter", "presence": "+ presence counter"}
COLUMNS = ("number", "count", "all", "pair_number", "pair_count", "pair_all")  # of the paper's second table
MODELS = {"baseline": ORANGE, "nms": GREY, "counter": BLUE, "presence": GREEN}
CURVES = {
    "count": "accuracy on counting questions, %",
    "count_2_or_more": "accuracy, true count of 2 or more, %",
    "count_mae": "mean error of the count",
}
MATRICES = {"relevance": "A", "distance": "D", "count_matrix": "C"}


def markdown_table(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Return the scores of each model's runs in the layout of the paper's second table, in Markdown.

    >>> print(markdown_table({"nms": [{"all": 64.8}]}).splitlines()[0])
    | Model | Number | Count | All | Pair number | Pair count | Pair all |
    """
    titles = [key.replace("_", " ").capitalize() for key in COLUMNS]
    lines = [["Model", *titles], ["---", *["---:"] * len(COLUMNS)]]
    for model, scores in runs.items():
        cells = [format_score([run[key] for run in scores if key in run]) for key in COLUMNS]
        lines.append([TITLES.get(model, model), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw_learning_curves(path: Path, experiments: Mapping[str, Results]) -> None:
    """Draw the mean over seeds of each model by epoch, in a band from minimum to maximum."""
    with picture(path, 10, 0.4 + 2.8 * len(experiments)) as figure:
        grid = figure.subplots(len(experiments), len(CURVES), squeeze=False)
        for row, (name, results) in zip(grid, experiments.items(), strict=True):
            for axes, (key, label) in zip(row, CURVES.items(), strict=True):
                for model, colour in MODELS.items():
                    _draw_curve(axes, [run["curve"] for run in results if run["model"] == model], key, model, colour)
                axes.set(title=label, xlabel="epochs")
                axes.grid(alpha=0.3)
            row[0].set_ylabel(name)
        _name_lines(figure, grid[0][0])


def _name_lines(figure: Figure, axes: Axes) -> None:
    """Draw the legend of one panel below all of them."""
    drawn, names = axes.get_legend_handles_labels()
    figure.legend(drawn, names, loc="outside lower center", ncols=len(names))


def _draw_curve(axes: Axes, curves: list[list[dict[str, float]]], key: str, model: str, colour: str) -> None:
    if not curves or key not in curves[0][0]:
        return
    epochs = [point["epoch"] for point in curves[0]]
    values = [[curve[index][key] for curve in curves] for index in range(len(epochs))]
    axes.fill_between(epochs, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.2, lw=0)
    axes.plot(epochs, [mean(v) for v in values], color=colour, label=model)


def draw_trained_activations(path: Path, experiments: Mapping[str, Results], toy: Results, side_length: float) -> None:
    """Draw f1 … f8 of trained VQA models, a line for each seed, over those of the toy task."""
    trained = {
        name: [run["learned"]["activations"] for run in results if run["model"] == "counter"]
        for name, results in experiments.items()
    }
    vqa.draw_trained_activations(path, trained, toy, side_length)


def draw_trained_presence(path: Path, experiments: Mapping[str, Results]) -> None:
    """Draw φ, τ, η and κ of trained presence counters, a line for each seed."""
    with picture(path, 10, 3) as figure:
        row = list(figure.subplots(1, 4))
        for (name, results), colour in zip(experiments.items(), (BLUE, ORANGE), strict=False):
            chosen = [run for run in results if run["model"] == "presence"]
            for number, run in enumerate(chosen):
                label = name if number == 0 else None
                draw_presence(row, run["learned"]["presence"], 0, color=colour, lw=1, alpha=0.8, label=label)
        label_presence(row, 0, last=True)
        row[0].set_ylabel("")
        _name_lines(figure, row[0])


def draw_examples(path: Path, results: Results) -> None:
    """Draw each example's boxes by attention, A, D and C of the counter model, and the presence of each box."""
    runs = {run["model"]: run for run in results if run["seed"] == 0}
    if not {"counter", "presence"} <= runs.keys():
        return
    examples = runs["counter"]["examples"]
    with picture(path, 10, 2.35 * len(examples)) as figure:
        grid = figure.subplots(
            len(examples), 2 + len(MATRICES), squeeze=False, gridspec_kw={"width_ratios": (1.5, 1.5, 1, 1, 1)}
        )
        for index, (row, example) in enumerate(zip(grid, examples, strict=True)):
            seen, counted = example["trace"], runs["presence"]["examples"][index]["trace"]
            _draw_boxes(row[0], seen["boxes"], seen["attention"], "attention" if index == 0 else "")
            _draw_boxes(row[1], counted["boxes"], counted["presence"], "presence" if index == 0 else "")
            row[0].set_xlabel(f"c = {seen['count']:.2f}\n", fontsize=9)
            row[1].set_xlabel(f"Σ p = {counted['count']:.2f}\n", fontsize=9)
            for axes, (name, symbol) in zip(row[2:], MATRICES.items(), strict=True):
                scale = axes.imshow(seen[name], vmin=0, vmax=1, cmap="Blues")
                axes.set(xticks=[], yticks=[], title=f"${symbol}$" if index == 0 else "")
            _write_answers(row[2], example, {name: run["examples"][index]["answer"] for name, run in runs.items()})
        figure.colorbar(scale, ax=[*grid[:, -1]], label="attention, presence, entries", shrink=0.25, anchor=(0, 1))


def _write_answers(axes: Axes, example: Mapping[str, Any], answers: Mapping[str, str]) -> None:
    """Write a question below a panel, and the answers, right ones green and wrong ones red."""
    # The text may extend below the other matrices, so the layout must ignore it.
    place = {"va": "top", "transform": axes.transAxes, "in_layout": False, "fontsize": 9}
    axes.text(0, -0.06, f"{example['question']} True: {example['true_count']}", **place)
    for column, model in enumerate(model for model in MODELS if model in answers):
        colour = "#1a7f37" if answers[model] == str(example["true_count"]) else "#b3261e"
        axes.text(0.78 * column, -0.2, f"{model} {answers[model]}", color=colour, weight="bold", **place)


def _draw_boxes(axes: Axes, boxes: list[list[float]], weights: list[float], title: str) -> None:
    """Draw boxes in grey, those of large weight in blue and in front."""
    for (x1, y1, x2, y2), weight in sorted(zip(boxes, weights, strict=True), key=lambda pair: pair[1]):
        colour = colormaps["Blues"](0.35 + 0.65 * weight)
        axes.add_patch(
            Rectangle(
                (x1, y1),
                x2 - x1,
                y2 - y1,
                facecolor=(*colour[:3], 0.3 * weight),
                edgecolor=colour,
                lw=0.4 + 1.6 * weight,
            )
        )
    right, bottom = (max(box[index] for box in boxes) for index in (2, 3))
    axes.set(xlim=(0, right), ylim=(bottom, 0), aspect="equal", xticks=[], yticks=[], title=title)
    axes.spines[:].set_visible(True)
