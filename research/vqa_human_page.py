"""Fill the tables and draw the figures of docs/results/vqa from `answers.npz` and `results.jsonl` there.

    python research/vqa_human_page.py docs/results/vqa ../shared/data docs/results/toy/hard    # 30 s

With `--runs runs/human`, both files are first taken from there, without what the page does not show. Text between
`<!-- NAME -->` and `<!-- end -->` in README.md is written anew; all other text is left alone.

Of the figures, `gains`, `by_count` and `curves` are drawn from the answers, `activations` and `presence` from the
functions in the results; research/vqa_human_examples.py draws the examples. With `--pdf FOLDER`, the figures are drawn
for papers, 6.75 and 3.25 inches wide, and nothing else is done.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from vqa_human_scores import Answers, by_row, read_results

from tallybox.files import atomic_writing, write_text
from tallybox.plotting import BLUE, GREEN, GREY, NARROW, ORANGE, add_letters, panels
from tallybox.runs import read_results as read_lines
from tallybox.toy.figures import draw_presence, label_presence
from tallybox.vqa.config import MODELS
from tallybox.vqa.figures import draw_trained_activations

sys.path.append(str(Path(__file__).parent.parent / "docs"))
from house_style import LIGHT, chart, inked, inter, shorten

# The models with the settings that training photos chose for each, see `CHOSEN` in vqa_human.py.
TITLES = {"baseline": "Baseline", "nms": "+ NMS", "counter": "+ counter", "presence": "+ presence counter"}
# The rows with the same settings for all models: what titles say of them, and the ends of the models' names.
SETTINGS = {
    "": {"baseline": "", "nms": ".calm", "counter": ".full.calm", "presence": ".full.calm"},
    ", no dropout": {"baseline": ".still", "nms": "", "counter": ".full", "presence": ".full"},
    ", scores only": {"baseline": ".scores", "nms": ".scores.calm", "counter": ".calm", "presence": ".calm"},
    ", scores only, no dropout": {"baseline": ".scores.still", "nms": ".scores", "counter": "", "presence": ""},
}
LEVELS = {".free": ", free level", "": ", mean level"}
LEVELS_OF = {"baseline": {"": ""}, "nms": {"": ""}, "counter": LEVELS, "presence": LEVELS}


def same(model: str, settings: str = "", more: str = "") -> str:
    """Return a row by its model, the settings that it shares with others, and what else is changed."""
    return model + SETTINGS[settings][model] + more


SAME = {
    same(model, settings, level): TITLES[model] + says + settings
    for settings in SETTINGS
    for model in MODELS
    for level, says in LEVELS_OF[model].items()
}
COUNTING = [
    same(model, settings, level)
    for model in ("counter", "presence")
    for settings, level in (("", ".free"), ("", ""), (", scores only, no dropout", ""))
]
# What the differences are of: a row, another, and what the table says.
GAINS = {row: ("baseline", f"{title[2:]} − baseline") for row, title in TITLES.items() if row != "baseline"}
SAME_GAINS = {
    row: (same("baseline", settings), f"{SAME[row][2:]} − baseline")
    for settings in SETTINGS
    for model in MODELS[1:]
    for row in (same(model, settings, level) for level in LEVELS_OF[model])
}
OTHERS = {
    "baseline.blind": "baseline, question only",
    "baseline.told": "baseline, told the true count",
    same("presence", more=".told"): "presence, told the true count",
    same("counter", more=".x1"): "counter, factor 1",
    same("counter", more=".x8"): "counter, factor 8",
    same("counter", more=".objects16"): "counter, 16 objects",
    same("presence", more=".x1"): "presence, factor 1",
    **{same(model, says, ".tallyqa"): f"{model}{says}, with TallyQA" for says in SETTINGS for model in MODELS},
    **{same(model, more=".written"): f"{model}, with written questions" for model in MODELS},
    "presence.ask": "presence, scores only, no dropout, all questions, also photos at full size",
}
# Regions' 48 components are 0 for TallyQA's photos, so only rows that read the scores alone can answer there.
ON_TALLYQA = [
    same(model, settings, more)
    for more in ("", ".tallyqa")
    for settings in (", scores only", ", scores only, no dropout")
    for model in MODELS
]
ON_TALLYQA += ["presence.ask"]
OF_RUNS = ("runs", "scored_answers", "tallyqa_val_answers")  # their last dimension
RESULTS = ("row", "seed", "steps", "seconds", "device", "versions", "learned", "attention")  # that the page shows
COLOURS = {"baseline": ORANGE, "nms": GREY, "counter": BLUE, "presence": GREEN}
# The paper's second table: mean and sample deviation of four runs.
PAPER_RUNS = 4
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
OF_SHARES = {same(model, more=end): f"{model}, {share:g}" for model in MODELS for end, share in SHARES.items()}
COUNTERS = {same("counter"): "VQA, mean level", same("counter", more=".free"): "VQA, free level"}
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
    kept = ("table", "tallyqa_val_ids", *OF_RUNS)
    shown = {*SAME, *OTHERS, *OF_SHARES}
    with np.load(runs / "answers.npz") as file, atomic_writing(out / "answers.npz") as written:
        columns = [name.rpartition("-")[0] in shown for name in file["runs"].tolist()]
        arrays = {name: file[name][..., columns] if name in OF_RUNS else file[name] for name in kept}
        np.savez_compressed(written, **{name: np.ascontiguousarray(array) for name, array in arrays.items()})
    results = ({key: run[key] for key in RESULTS} for run in read_results(runs) if run["row"] in shown)
    write_text(out / "results.jsonl", "".join(json.dumps(result) + "\n" for result in results))


def differences_table(answers: Answers, rows: Mapping[str, tuple[str, str]], columns: Mapping[str, str]) -> str:
    """Return how far rows are ahead of others, with standard errors, bold if beyond two of them."""
    lines = [["", *columns.values()]]
    for row, (other, title) in rows.items():
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


def paper_gain(row: str, column: int) -> tuple[float, float]:
    """Return how far a row of the paper's table is ahead of its baseline, and the standard error over its runs."""
    (one, its_deviation), (other, deviation) = (
        map(float, PAPER[name].split()[column].split("±")) for name in (TITLES[row], "Baseline")
    )
    return one - other, ((its_deviation**2 + deviation**2) / PAPER_RUNS) ** 0.5


def draw_gains(path: Path, answers: Answers) -> None:
    """Draw how far each row is ahead of the baseline, with two standard errors, and the paper's own numbers."""
    titles = {"count": "Counting questions", "pair_count": "Pairs of them"}
    rows = [row for row in GAINS if row in answers.rows]  # from the top
    with chart(path, 2) as figure:
        both = panels(figure, 1, 2)
        for axes, (key, title) in zip(both, titles.items(), strict=True):
            axes.axvline(0, color=GREY, lw=0.6)
            for place, row in enumerate(rows):
                gain, error = answers.difference(row, "baseline", key)
                colour = COLOURS[row]
                axes.errorbar(gain, place, xerr=2 * error, fmt="o", color=colour, ms=4.5, capsize=2)
                if TITLES[row] in PAPER:
                    theirs, error = paper_gain(row, [*COLUMNS].index(key))
                    look = {"fmt": "D", "ms": 4, "mfc": "none", "capsize": 2}
                    axes.errorbar(theirs, place + 0.28, xerr=2 * error, color=colour, **look)
                    axes.annotate(
                        "paper",
                        (theirs, place + 0.28),
                        xytext=(6, 0),
                        textcoords="offset points",
                        va="center",
                        size=6.5,
                    )
            axes.set_yticks(range(len(rows)), [TITLES[row] for row in rows])
            axes.set(title=title, xlabel="points ahead of the baseline", ylim=(len(rows) - 0.5, -0.5))
            axes.tick_params(axis="y", length=0)
            axes.margins(x=0.12)
        if figure.get_figwidth() > NARROW:
            both[1].set_yticklabels([])
        add_letters(both)


def draw_curves(path: Path, answers: Answers) -> None:
    """Draw scores by the share of the training photos: means, and from minimum to maximum over seeds."""
    titles = {
        "count": ("Counting questions", "accuracy, %"),
        "pair_count": ("Pairs of them", "both answers right, %"),
        "count_mae": ("Counts", "mean error"),
    }
    with chart(path, 2.2) as figure:
        row = panels(figure, 1, 3)
        for axes, (key, (title, label)) in zip(row, titles.items(), strict=True):
            for number, (model, colour) in enumerate(COLOURS.items()):
                found = {x: answers.values(same(model, more=name), key).mean(1) for name, x in SHARES.items()}
                places = [100 * x + 1.6 * (number - 1.5) for x in found]
                means = [values.mean() for values in found.values()]
                spread = [[abs(end(v) - v.mean()) for v in found.values()] for end in (min, max)]
                axes.errorbar(places, means, yerr=spread, fmt="o-", color=colour, ms=3, lw=1.1, elinewidth=0.7)
            axes.set(title=title, ylabel=label, xlabel="training photos, %", xticks=[100 * x for x in SHARES.values()])
            axes.set_xlim(15, 110)
        add_names(figure)
        add_letters(row)


def draw_by_count(path: Path, answers: Answers) -> None:
    """Draw the accuracy by true count: the mean over seeds, and each of them."""
    counts = [key for key in BY_COUNT if key not in ("count_mae", "count_rmse")]
    with chart(path, 2.4) as figure:
        (axes,) = panels(figure, 1, 1)
        for number, (model, colour) in enumerate(COLOURS.items()):
            for place, key in enumerate(counts):
                by_seed = answers.values(model, key).mean(1)
                x = place + 0.2 * (number - 1.5)
                axes.bar(x, by_seed.mean(), 0.18, color=colour, alpha=0.75, lw=0)
                axes.plot([x] * len(by_seed), by_seed, "o", color=colour, ms=2.2, mec="white", mew=0.3)
        axes.set_xticks(range(len(counts)), [BY_COUNT[key] for key in counts])
        axes.set(xlabel="true count", ylabel="accuracy, %")
        axes.tick_params(axis="x", length=0)
        add_names(figure)


def add_names(figure: Figure) -> None:
    """Name the models in their colours below all panels."""
    marks = [Line2D([], [], color=colour, marker="o", ms=3.5, lw=1.1) for colour in COLOURS.values()]
    columns = 4 if figure.get_figwidth() > NARROW else 2
    figure.legend(marks, TITLES.values(), loc="outside lower center", ncols=columns, labelcolor="linecolor")


def draw_presence_functions(path: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Draw φ, τ, η and κ of trained presence counters, a line for each seed."""
    with chart(path, 1.75) as figure:
        row = panels(figure, 1, 4, narrow=2)
        for run in runs:
            draw_presence(row, run["learned"]["presence"], 0, color=GREEN, lw=1, alpha=0.8)
        label_presence(row, "output")
        add_letters(row)


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


def draw_figures(
    out: Path, answers: Answers, results: Mapping[str, list[Mapping[str, Any]]], toy: Path, *, pdf: bool
) -> None:
    """Draw all figures into a folder, as SVG for the site or as PDF for papers."""
    trained = {title: results[row] for row, title in COUNTERS.items() if row in results}
    counters = {title: [run["learned"]["activations"] for run in runs] for title, runs in trained.items()}
    activations = partial(
        draw_trained_activations, trained=counters, toy=read_lines(toy / "results.jsonl"), side_length=TOY_SIDE_LENGTH
    )
    drawings: dict[str, Callable[[Path], None]] = {
        "gains": partial(draw_gains, answers=answers),
        "by_count": partial(draw_by_count, answers=answers),
        "curves": partial(draw_curves, answers=answers),
        "activations": activations,
        "presence": partial(draw_presence_functions, runs=results["presence"]),
    }
    with inter(), inked(LIGHT):
        for name, draw in drawings.items():
            for ending in (".pdf", "-narrow.pdf") if pdf else (".svg",):
                draw(out / f"{name}{ending}")
                shorten(out / f"{name}{ending}")


def main() -> None:
    """Fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("toy", type=Path)
    parser.add_argument("--runs", type=Path, help="output of research/vqa_human.py")
    parser.add_argument("--pdf", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    if given.runs and not given.pdf:
        committed(given.runs, given.folder)
    answers, results = Answers.read(given.folder, given.data / "vqa2-subset"), by_row(read_results(given.folder))
    draw_figures(given.pdf or given.folder / "figures", answers, results, given.toy, pdf=bool(given.pdf))
    if given.pdf:
        return
    tallyqa = Answers.of_tallyqa(given.folder, given.data, "val")
    names = SAME | OTHERS
    texts = {
        "table": paper_table(answers),
        "differences": differences_table(answers, GAINS, SHORT),
        "same settings": scores_table(answers, SAME, SHORT),
        "same differences": differences_table(answers, SAME_GAINS, SHORT),
        "by count": scores_table(answers, TITLES, BY_COUNT),
        "rows": scores_table(answers, OTHERS, SHORT),
        "shares": scores_table(answers, OF_SHARES, SHORT),
        "tallyqa": scores_table(tallyqa, {row: names[row] for row in ON_TALLYQA}, TALLYQA),
        "attention": attention_table(results, {row: SAME[row] for row in COUNTING}),
        "machine": machine(results),
    }
    page = given.folder / "README.md"
    write_text(page, filled(page.read_text(), texts))


if __name__ == "__main__":
    main()
