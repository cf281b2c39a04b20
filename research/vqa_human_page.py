"""Fill the tables and draw the figures of docs/results/vqa from `answers.npz` and `results.jsonl` there.

    python research/vqa_human_page.py docs/results/vqa ../shared/data docs/results/toy/hard    # 30 s

With `--runs runs/human`, both files are first taken from there, without what the page does not show. Text between
`<!-- NAME -->` and `<!-- end -->` in README.md is written anew; all other text is left alone.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from vqa_human_scores import Answers, by_row, read_results

from tallybox.files import atomic_writing, write_text
from tallybox.plotting import BLUE, GREEN, GREY, ORANGE, picture
from tallybox.runs import read_results as read_lines
from tallybox.toy.figures import draw_presence, label_presence
from tallybox.vqa.config import MODELS
from tallybox.vqa.figures import draw_trained_activations

TITLES = {
    "baseline": "Baseline",
    "nms": "+ NMS",
    "counter.free": "+ counter, free level",
    "counter": "+ counter, mean level",
    "presence.free": "+ presence counter, free level",
    "presence": "+ presence counter, mean level",
}
# What the differences are of: a row, another, and what the table says.
COMPARED = {
    **{row: ("baseline", f"{title[2:]} − baseline") for row, title in TITLES.items() if row != "baseline"},
    "counter ": ("counter.free", "counter: mean level − free level"),
    "presence ": ("presence.free", "presence counter: mean level − free level"),
}
OTHERS = {
    "baseline.blind": "baseline, question only",
    "baseline.told": "baseline, told the true count",
    "presence.told": "presence, told the true count",
    "counter.x1": "counter, factor 1",
    "counter.x8": "counter, factor 8",
    "counter.objects16": "counter, 16 objects",
    "presence.x1": "presence, factor 1",
    **{f"{model}.scores": f"{model}, detector's scores only" for model in MODELS},
    **{f"{model}.tallyqa": f"{model}, with TallyQA" for model in ("baseline", "counter", "presence")},
    **{f"{model}.scores.tallyqa": f"{model}, scores only, with TallyQA" for model in MODELS},
    **{f"{model}.written": f"{model}, with written questions" for model in ("baseline", "counter", "presence")},
    "presence.ask": "presence, scores only, all questions, also photos at full size",
}
# Regions' 48 components are 0 for TallyQA's photos, so only rows that read the scores alone can answer there.
ON_TALLYQA = [*(f"{model}.scores{more}" for more in ("", ".tallyqa") for model in MODELS), "presence.ask"]
RESULTS = ("row", "seed", "steps", "seconds", "device", "versions", "learned", "attention")  # that the page shows
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
COUNTERS = {"counter": "VQA, mean level", "counter.free": "VQA, free level"}
TOY_SIDE_LENGTH = 0.5  # of the committed sweep
END = "<!-- end -->"


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return a table, its first line the header; all columns but the first hold numbers."""
    header, *rest = lines
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rest))


def scores_table(answers: Answers, rows: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """Return scores of rows, mean and sample deviation over seeds."""
    lines = [["", "seeds", *columns.values()]]
    for row, title in rows.items():
        if row in answers.rows:
            cells = (_figure(*answers.mean(row, key), key) for key in columns)
            lines.append([title, str(len(answers.values(row, "all"))), *cells])
    return markdown(lines)


def paper_table(answers: Answers) -> str:
    """Return the paper's second table with our rows below its own."""
    header, rule, *ours = scores_table(answers, TITLES, COLUMNS).splitlines()
    paper = [f"| paper: {name} | 4 | {' | '.join(cells.split())} |" for name, cells in PAPER.items()]
    return "\n".join((header, rule, *paper, *ours))


def committed(runs: Path, out: Path) -> None:
    """Write answers and results of runs without what the page does not show."""
    shown = {*TITLES, *OTHERS, *(model + name for model in MODELS for name in SHARES)}
    with np.load(runs / "answers.npz") as file:
        names: list[str] = file["runs"].tolist()
        columns = [place for place, name in enumerate(names) if name.rpartition("-")[0] in shown]
        answers = {key: np.ascontiguousarray(file[f"{key}_answers"][:, columns]) for key in ("scored", "tallyqa_val")}
        with atomic_writing(out / "answers.npz") as written:
            np.savez_compressed(
                written, table=file["table"], runs=file["runs"][columns], tallyqa_val_ids=file["tallyqa_val_ids"],
                **{f"{key}_answers": values for key, values in answers.items()},
            )  # fmt: skip
    results = ({key: run[key] for key in RESULTS} for run in read_results(runs) if run["row"] in shown)
    write_text(out / "results.jsonl", "".join(json.dumps(result) + "\n" for result in results))


def differences_table(answers: Answers, rows: Mapping[str, tuple[str, str]], columns: Mapping[str, str]) -> str:
    """Return how far rows are ahead of others, with standard errors, bold if beyond two of them."""
    lines = [["", *columns.values()]]
    for row, (other, title) in ((row.strip(), compared) for row, compared in rows.items()):
        if {row, other} <= {*answers.rows}:
            found = ((answers.difference(row, other, key), 3 if "mae" in key else 2) for key in columns)
            cells = [(f"{ahead:+.{n}f} ± {error:.{n}f}", abs(ahead) > 2 * error) for (ahead, error), n in found]
            lines.append([title, *(f"**{cell}**" if is_clear else cell for cell, is_clear in cells)])
    return markdown(lines)


def attention_table(results: Mapping[str, list[Mapping[str, Any]]], rows: Mapping[str, str]) -> str:
    """Return what the first glimpse tells apart after training and what is counted from it, seed by seed."""
    lines = [["", "attention to regions of the asked category / to others", "counted if the true count is 1 / is 6"]]
    for row, title in rows.items():
        trained = [run["attention"]["trained"] for run in results[row]]
        attention = ", ".join(f"{one['asked']:.2f} / {one['others']:.2f}" for one in trained)
        counted = ", ".join(f"{one['counted'][1]:.1f} / {one['counted'][6]:.1f}" for one in trained)
        lines.append([title, attention, counted])
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
        axes.plot(
            *zip(*((share, v.mean()) for share, v in shares), strict=True), color=COLOURS[model], label=TITLES[model]
        )

    _draw_panels(path, keys, draw, xlabel="share of the training photos", xticks=list(SHARES.values()))


def draw_by_count(path: Path, answers: Answers) -> None:
    """Draw the accuracy by true count, the mean over seeds."""
    keys = {"accuracy": "accuracy by true count, %"}
    counts = [key for key in BY_COUNT if key not in ("count_mae", "count_rmse")]

    def draw(axes: Axes, _: str, model: str) -> None:
        means = [answers.mean(model, key)[0] for key in counts]
        places = [place + 0.2 * ([*COLOURS].index(model) - 1.5) for place in range(len(counts))]
        axes.bar(places, means, 0.2, color=COLOURS[model], label=TITLES[model])

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
    with picture(path, 1.5 + 3 * len(keys), 3.5) as figure:
        row = figure.subplots(1, len(keys), squeeze=False)[0]
        for axes, (key, title) in zip(row, keys.items(), strict=True):
            for model in COLOURS:
                draw(axes, key, model)
            axes.set(title=title, xlabel=xlabel)
            axes.set_xticks(xticks, labels)
            axes.grid(alpha=0.3)
        drawn, names = row[0].get_legend_handles_labels()
        figure.legend(drawn, names, loc="outside lower center", ncols=2 if len(keys) == 1 else 4)


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
    parser.add_argument("--runs", type=Path, help="output of research/vqa_human.py")
    given = parser.parse_args()
    if given.runs:
        committed(given.runs, given.folder)
    answers, results = Answers.read(given.folder, given.data / "vqa2-subset"), by_row(read_results(given.folder))
    tallyqa = Answers.of_tallyqa(given.folder, given.data, "val")
    names = TITLES | OTHERS
    texts = {
        "table": paper_table(answers),
        "differences": differences_table(answers, COMPARED, SHORT),
        "by count": scores_table(answers, TITLES, BY_COUNT),
        "rows": scores_table(answers, OTHERS, SHORT),
        "shares": scores_table(answers, {m + s: f"{m}, {SHARES[s]:g}" for m in MODELS for s in SHARES}, SHORT),
        "tallyqa": scores_table(tallyqa, {row: names[row] for row in ON_TALLYQA}, TALLYQA),
        "attention": attention_table(
            results, {row: title for row, title in TITLES.items() if row not in ("baseline", "nms")}
        ),
        "machine": machine(results),
    }
    page = given.folder / "README.md"
    write_text(page, filled(page.read_text(), texts))
    figures = given.folder / "figures"
    draw_curves(figures / "curves.svg", answers)
    draw_by_count(figures / "by_count.svg", answers)
    counters = {title: [run["learned"]["activations"] for run in results[row]] for row, title in COUNTERS.items()}
    toy = read_lines(given.toy / "results.jsonl")
    draw_trained_activations(figures / "activations.svg", counters, toy, TOY_SIDE_LENGTH)
    draw_presence_functions(figures / "presence.svg", results["presence"])


if __name__ == "__main__":
    main()
