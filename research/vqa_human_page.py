"""Fill the tables and draw the figures of docs/results/vqa from `answers.npz` and `results.jsonl` there.

    python research/vqa_human_page.py docs/results/vqa ../shared/data docs/results/toy/hard    # a minute

Text between `<!-- NAME -->` and `<!-- end -->` in README.md is written anew; all other text is left alone.
"""

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from vqa_human_scores import Answers, by_row, read_results

from tallybox.files import write_text
from tallybox.plotting import BLUE, GREEN, GREY, ORANGE, picture
from tallybox.runs import read_results as read_lines
from tallybox.toy.figures import draw_presence, label_presence
from tallybox.vqa.config import MODELS
from tallybox.vqa.figures import draw_trained_activations

TITLES = {"baseline": "Baseline", "nms": "+ NMS", "counter": "+ counter", "presence": "+ presence counter"}
COLOURS = {"baseline": ORANGE, "nms": GREY, "counter": BLUE, "presence": GREEN}
# The paper's second table: mean and sample deviation of four runs.
PAPER = {
    "Baseline": "– 44.83±0.2 – 64.80±0.0 51.69±0.2 17.34±0.2 20.02±0.2 36.44±0.1",
    "+ NMS": "– 44.60±0.1 – 64.80±0.1 51.41±0.1 17.06±0.1 19.72±0.1 36.44±0.2",
    "+ counter": "– 49.36±0.1 – 65.42±0.1 57.03±0.0 23.10±0.2 26.63±0.2 37.19±0.1",
}
COLUMNS = {
    "yes/no": "Yes/no",
    "number": "Number",
    "other": "Other",
    "all": "All",
    "count": "Count",
    "pair_number": "Pair number",
    "pair_count": "Pair count",
    "pair_all": "Pair all",
}
BY_COUNT = {
    "count_0": "0",
    "count_1": "1",
    "count_2_to_4": "2–4",
    "count_5_or_more": "5 or more",
    "count_mae": "mean error",
    "count_rmse": "RMSE",
}
SHORT = {"count": "Count", "pair_count": "Pair count", "count_mae": "mean error", "yes/no": "Yes/no", "other": "Other"}
SHORT |= {"all": "All"}
TALLYQA = {"count": "accuracy", "count_rmse": "RMSE", "count_mae": "mean error"}
SHARES = {".quarter": 0.25, ".half": 0.5, "": 1.0}
TOY_SIDE_LENGTH = 0.5  # of the committed sweep
END = "<!-- end -->"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a table, its first line the header; all columns but the first hold numbers."""
    header, *rest = lines
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rest))


def scores_table(answers: Answers, rows: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """Return scores of rows, mean and sample deviation over seeds."""
    lines = [["", *columns.values()]]
    for row, title in rows.items():
        if row in answers.rows:
            lines.append([title, *(_figure(*answers.mean(row, key), key) for key in columns)])
    return markdown(lines)


def differences_table(answers: Answers, rows: Mapping[str, tuple[str, str]], columns: Mapping[str, str]) -> str:
    """Return how far rows are ahead of others, with standard errors: by row, the other row and a title."""
    lines = [["", *columns.values()]]
    for row, (other, title) in rows.items():
        if {row, other} <= {*answers.rows}:
            found = ((answers.difference(row, other, key), 3 if "mae" in key else 2) for key in columns)
            lines.append([title, *(f"{ahead:+.{n}f} ± {error:.{n}f}" for (ahead, error), n in found)])
    return markdown(lines)


def attention_table(results: Mapping[str, list[Mapping[str, Any]]], rows: Sequence[str]) -> str:
    """Return what attention tells apart before and after training, means over seeds."""
    lines = [["", "mean", "asked for", "others", "mean", "asked for", "others", "counted, by true count 0 … 6"]]
    for row in rows:
        cells = [
            f"{statistics.fmean(run['attention'][when][key] for run in results[row]):.2f}"
            for when in ("initial", "trained")
            for key in ("mean", "asked", "others")
        ]
        counted = [run["attention"]["trained"].get("counted") for run in results[row]]
        means = (
            [f"{statistics.fmean(by_truth):.1f}" for by_truth in zip(*counted, strict=True)] if all(counted) else ["–"]
        )
        lines.append([row, *cells, ", ".join(means)])
    return markdown(lines)


def machine(results: Mapping[str, list[Mapping[str, Any]]]) -> str:
    """Say what the runs were made with."""
    runs = [run for of_row in results.values() for run in of_row]
    seconds = [run["seconds"] for run in runs]
    first = runs[0]
    return (
        f"{len(runs)} runs of {len(results)} rows, {min(seconds):.0f} to {max(seconds):.0f} s each side by side; "
        f"{first['device']}, torch {first['versions']['torch']}."
    )


def draw_curves(path: Path, answers: Answers) -> None:
    """Draw scores by the number of questions that are learned from: means, in a band from minimum to maximum."""
    keys = {"count": "accuracy on counting questions, %", "pair_count": "both answers of a pair right, %"}
    keys |= {"count_mae": "mean error of the count"}

    def draw(axes: Axes, key: str, model: str) -> None:
        shares = [(share, answers.values(model + name, key).mean(1)) for name, share in SHARES.items()]
        axes.fill_between(
            [share for share, _ in shares], *([end(v) for _, v in shares] for end in (min, max)),
            color=COLOURS[model], alpha=0.2, lw=0,
        )  # fmt: skip
        axes.plot(*zip(*((share, v.mean()) for share, v in shares), strict=True), color=COLOURS[model], label=model)

    _draw_panels(path, keys, draw, xlabel="share of the training photos", xticks=list(SHARES.values()))


def draw_by_count(path: Path, answers: Answers) -> None:
    """Draw the accuracy by true count, the mean over seeds."""
    keys = {"accuracy": "accuracy by true count, %"}
    counts = [key for key in BY_COUNT if key not in ("count_mae", "count_rmse")]

    def draw(axes: Axes, _: str, model: str) -> None:
        means = [answers.mean(model, key)[0] for key in counts]
        places = [place + 0.2 * ([*COLOURS].index(model) - 1.5) for place in range(len(counts))]
        axes.bar(places, means, 0.2, color=COLOURS[model], label=model)

    _draw_panels(path, keys, draw, xlabel="true count", xticks=range(len(counts)), labels=[BY_COUNT[k] for k in counts])


def _draw_panels(
    path: Path,
    keys: Mapping[str, str],
    draw: Callable[[Axes, str, str], None],
    *,
    xlabel: str,
    xticks: Sequence[float],
    labels: Sequence[str] | None = None,
) -> None:
    with picture(path, 1.5 + 3 * len(keys), 3.2) as figure:
        row = figure.subplots(1, len(keys), squeeze=False)[0]
        for axes, (key, title) in zip(row, keys.items(), strict=True):
            for model in COLOURS:
                draw(axes, key, model)
            axes.set(title=title, xlabel=xlabel)
            axes.set_xticks(xticks, labels)
            axes.grid(alpha=0.3)
        drawn, names = row[0].get_legend_handles_labels()
        figure.legend(drawn, names, loc="outside lower center", ncols=len(names))


def draw_presence_functions(path: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Draw φ, τ, η and κ of trained presence counters, a line for each seed."""
    with picture(path, 10, 3) as figure:
        row = list(figure.subplots(1, 4))
        for run in runs:
            draw_presence(row, run["learned"]["presence"], 0, color=GREEN, lw=1, alpha=0.8)
        label_presence(row, 0, last=True)
        row[0].set_ylabel("")


def filled(page: str, texts: Mapping[str, str]) -> str:
    """Return a page with its marked parts replaced."""
    for name, text in texts.items():
        before, marked, after = page.partition(f"<!-- {name} -->\n")
        if marked:
            page = before + marked + text + "\n" + END + after.partition(END)[2]
    return page


def _figure(mean: float, deviation: float, key: str) -> str:
    digits = 3 if key in ("count_mae", "count_rmse") else 2
    return f"{mean:.{digits}f}" + (f"±{deviation:.{digits - 1}f}" if deviation == deviation else "")


def main() -> None:
    """Fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("toy", type=Path)
    given = parser.parse_args()
    answers, results = Answers.read(given.folder, given.data / "vqa2-subset"), by_row(read_results(given.folder))
    tallyqa = Answers.of_tallyqa(given.folder, given.data, "val")
    others = {row: row for row in answers.rows if row not in MODELS}
    of_models = {row: ("baseline", title) for row, title in TITLES.items() if row != "baseline"}
    changes = {row: (row.partition(".")[0], row) for row in others}
    paper = [["", *COLUMNS.values()], *([name, *cells.split()] for name, cells in PAPER.items())]
    texts = {
        "paper": markdown(paper),
        "table": scores_table(answers, TITLES, COLUMNS),
        "differences": differences_table(answers, of_models, SHORT),
        "by count": scores_table(answers, TITLES, BY_COUNT),
        "rows": scores_table(answers, others, SHORT),
        "changes": differences_table(answers, changes, SHORT),
        "tallyqa": scores_table(tallyqa, {row: row for row in answers.rows}, TALLYQA),
        "attention": attention_table(results, [row for row in results if row.partition(".")[0] != "nms"]),
        "machine": machine(results),
    }
    page = given.folder / "README.md"
    write_text(page, filled(page.read_text(), texts))
    figures = given.folder / "figures"
    if {model + name for model in MODELS for name in SHARES} <= {*answers.rows}:
        draw_curves(figures / "curves.svg", answers)
    draw_by_count(figures / "by_count.svg", answers)
    activations = {"VQA": [run["learned"]["activations"] for run in results["counter"]]}
    toy = read_lines(given.toy / "results.jsonl")
    draw_trained_activations(figures / "activations.svg", activations, toy, TOY_SIDE_LENGTH)
    draw_presence_functions(figures / "presence.svg", results["presence"])


if __name__ == "__main__":
    main()
