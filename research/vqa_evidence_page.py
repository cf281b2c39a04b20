"""Fill the tables and draw the figures of docs/results/vqa from the results that research/vqa_evidence.py left there.

    python research/vqa_evidence_page.py docs/results/vqa docs/results/toy/hard runs/vqa-photos \
        ../shared/data/vqa2-subset     # a minute

Text between `<!-- NAME -->` and `<!-- end -->` in README.md is written anew; all other text is left alone.
"""

import argparse
import statistics
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import vqa_figures
from vqa_figures import TITLES
from vqa_scores import NO, UNDECIDED, YES, ValidationQuestions, difference, reached, source_table

from tallybox.files import write_text
from tallybox.runs import read_results
from tallybox.vqa.config import MODELS
from tallybox.vqa.evaluation import mean_and_deviation

EXPERIMENTS = {
    "photos": "A: real photos",
    "photos_unsupervised": "A, attention not supervised",
    "questions": "B: real questions",
    "questions_human": "B, human questions alone",
}
DRAWN = ("photos", "questions")
# The paper's second table, mean and sample deviation of four runs.
PAPER = {
    "Baseline": "44.83±0.2 51.69±0.2 64.80±0.0 17.34±0.2 20.02±0.2 36.44±0.1",
    "+ NMS": "44.60±0.1 51.41±0.1 64.80±0.1 17.06±0.1 19.72±0.1 36.44±0.2",
    "+ counter": "49.36±0.1 57.03±0.0 65.42±0.1 23.10±0.2 26.63±0.2 37.19±0.1",
}
BY_COUNT = {
    "count_0": "0",
    "count_1": "1",
    "count_2_to_4": "2–4",
    "count_5_or_more": "5 or more",
    "count_2_or_more": "2 or more",
    "count_mae": "mean absolute error",
}
SUPERVISION = {
    "count": "Count",
    "count_2_or_more": "True counts from 2",
    "count_mae": "Mean absolute error",
    "pair_count": "Pair count",
    "yes/no": "Yes/no",
    "other": "Other",
    "all": "All",
}
END = "<!-- end -->"
LINE = 128  # letters of a page's line
OTHERS = ("yes/no", "other")
TOY_SIDE_LENGTH = 0.5  # of the committed sweep; the paper has 0.2

Runs = dict[str, list[dict[str, float]]]  # by model: the scores of its seeds


def scores_by_model(results: list[dict[str, Any]]) -> Runs:
    """Return the scores of each model's seeds, in the paper's order of models."""
    return {name: [run["scores"] for run in runs] for name, runs in runs_by_model(results).items()}


def runs_by_model(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return each model's runs, in the paper's order of models."""
    found = {name: [run for run in results if run["model"] == name] for name in MODELS}
    return {name: runs for name, runs in found.items() if runs}


def paper_table() -> str:
    """Return the paper's table in Markdown."""
    header, rule = vqa_figures.markdown_table({}).splitlines()
    rows = [f"| {name} | {' | '.join(cells.split())} |" for name, cells in PAPER.items()]
    return "\n".join((header, rule, *rows))


def table_of(runs: Runs, columns: Mapping[str, str]) -> str:
    """Return some scores in Markdown: ``columns`` says which, and what they are called."""
    lines = [["Model", *columns.values()], ["---", *["---:"] * len(columns)]]
    for name, scores in runs.items():
        cells = [mean_and_deviation([run[key] for run in scores if key in run]) for key in columns]
        digits = [3 if key == "count_mae" else 2 for key in columns]
        lines.append(
            [
                TITLES.get(name, name),
                *(f"{mean:.{n}f}±{spread or 0:.{n - 1}f}" for (mean, spread), n in zip(cells, digits, strict=True)),
            ]
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class Comparison:
    """The runs of an experiment, compared by two standard errors over questions and seeds."""

    def __init__(self, runs: Mapping[str, list[dict[str, Any]]], questions: ValidationQuestions) -> None:
        self.runs, self.questions = runs, questions

    def row(self, goal: str, one: str, other: str, key: str, by: float = 0.0) -> tuple[str, str, str]:
        """Return a goal, the difference with its standard error, and whether one model is ahead by more than ``by``.

        Of the mean error, less is ahead.
        """
        ahead, error = difference(*(self.questions.values(self.runs[model], key) for model in (one, other)))
        gain = -ahead if key == "count_mae" else ahead
        digits = 3 if key == "count_mae" else 2
        return goal, f"{ahead:+.{digits}f} ± {error:.{digits}f}", reached(gain - by, error)

    def mean(self, model: str, key: str) -> float:
        """Return the mean of a score over seeds."""
        return statistics.fmean(run["scores"][key] for run in self.runs[model])


def goals_of_photos(runs: Comparison) -> list[tuple[str, str, str]]:
    """Return the goals of experiment A: what, the difference measured, whether it is reached."""
    counts = (("count", "count"), ("count_2_or_more", "true counts from 2"), ("pair_count", "count pairs"))
    less = 0.08 * runs.mean("baseline", "count_mae")
    rows = [runs.row(f"counter ahead of baseline, {name}", "counter", "baseline", key) for key, name in counts]
    rows += [
        runs.row("counter ahead of baseline, mean error by at least 8 %", "counter", "baseline", "count_mae", less),
        runs.row("presence ahead of counter, count", "presence", "counter", "count"),
        runs.row("presence ahead of baseline by 3, count", "presence", "baseline", "count", 3),
    ]
    goal, found, nms_is_ahead = runs.row("NMS not ahead of baseline, count", "nms", "baseline", "count")
    rows.append((goal, found, {YES: NO, NO: YES}.get(nms_is_ahead, UNDECIDED)))
    for model in ("counter", "presence"):
        for key in OTHERS:
            rows.append(runs.row(f"{model} at most a point behind baseline, {key}", model, "baseline", key, -1))
    return rows


def goals_of_questions(runs: Comparison) -> list[tuple[str, str, str]]:
    """Return the goals of experiment B: the paper's margins."""
    return [
        runs.row("counter ahead of baseline by 5.3, count", "counter", "baseline", "count", 5.3),
        runs.row("counter ahead of baseline by 6.6, count pairs", "counter", "baseline", "pair_count", 6.6),
        runs.row("presence ahead of counter, count", "presence", "counter", "count"),
    ]


GOALS: dict[str, Callable[[Comparison], list[tuple[str, str, str]]]] = {
    "photos": goals_of_photos,
    "questions": goals_of_questions,
    "questions_human": goals_of_questions,
}


def summary_of_photos(runs: Runs) -> str:
    """Return in words how far the counting models are ahead on real photos."""

    def mean(model: str, key: str) -> float:
        return statistics.fmean(run[key] for run in runs[model])

    def ahead(model: str) -> str:
        less = 100 * (1 - mean(model, "count_mae") / mean("baseline", "count_mae"))
        gain = mean(model, "count") - mean("baseline", "count")
        return f"{gain:.1f} points of count accuracy and {less:.0f} % of the mean error"

    from_two = {model: f"{mean(model, 'count_2_or_more'):.0f} %" for model in runs}
    text = (
        f"On real photos the paper's component is ahead of the baseline by {ahead('counter')}, presence counting by "
        f"{ahead('presence')}; the paper has 5.3 points on its own data. From two objects on, where counting should "
        f"show, the baseline has {from_two['baseline']} right, the paper's component {from_two['counter']}, "
        f"presence counting {from_two['presence']}."
    )
    return textwrap.fill(text, LINE)


def goals_table(rows: list[tuple[str, str, str]]) -> str:
    """Return goals in Markdown."""
    lines = ["| goal | difference ± standard error | reached |", "|---|---:|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def attention_table(results: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return how far attention tells the examples' proposals apart (seed 0), and what is counted from it."""
    lines = ["| experiment | model | minimum and maximum attention in a photo, means | counted, by true count 1 … 6 |"]
    lines.append("|---|---|---|---|")
    for name, runs in results.items():
        for run in sorted(runs, key=lambda run: run["model"]):
            traces = [example["trace"] for example in run["examples"] if "trace" in example]
            if traces:
                ends = [statistics.fmean(end(trace["attention"]) for trace in traces) for end in (min, max)]
                counted = ", ".join(f"{trace['count']:.1f}" for trace in traces)
                lines.append(f"| {EXPERIMENTS[name]} | {run['model']} | {ends[0]:.2f}, {ends[1]:.2f} | {counted} |")
    return "\n".join(lines)


def machine(results: Mapping[str, list[dict[str, Any]]]) -> str:
    """Say what the runs were made with."""
    lines = []
    for name, runs in results.items():
        first, seconds = runs[0], [run["seconds"] for run in runs]
        made = f"{first['device']}, torch {first['versions']['torch']}, tallybox {first['versions']['tallybox']}"
        lines.append(
            f"- {EXPERIMENTS[name]}: {len(runs)} runs of {first['steps']:,} steps, each scored on "
            f"{first['questions']:,} questions; {min(seconds):.0f} to {max(seconds):.0f} s each, side by side; {made}."
        )
    return "\n".join(lines)


def filled(page: str, texts: Mapping[str, str]) -> str:
    """Return a page with its marked parts replaced."""
    for name, text in texts.items():
        before, marked, after = page.partition(f"<!-- {name} -->\n")
        if marked:
            page = before + marked + text + "\n" + END + after.partition(END)[2]
    return page


def main() -> None:
    """Fill the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("toy", type=Path)
    parser.add_argument("photos", type=Path, help="the questions of experiment A, as research/vqa_photos.py wrote them")
    parser.add_argument("questions", type=Path, help="the questions of experiment B")
    given = parser.parse_args()
    folders = {name: given.photos if name.startswith("photos") else given.questions for name in EXPERIMENTS}
    by_folder = {folder: ValidationQuestions.read(folder) for folder in set(folders.values())}
    scored_on = {name: by_folder[folder] for name, folder in folders.items()}
    results = {name: read_results(given.folder / name / "results.jsonl.gz") for name in EXPERIMENTS}
    results = {
        name: [run | {"scores": scored_on[name].scores(scored_on[name].answers(run))} for run in runs]
        for name, runs in results.items()
        if runs
    }
    titled = {EXPERIMENTS[name]: results[name] for name in DRAWN if name in results}
    texts = {"paper": paper_table(), "machine": machine(results), "attention": attention_table(results)}
    for name in results:
        runs, questions = scores_by_model(results[name]), scored_on[name]
        texts |= {f"{name} table": vqa_figures.markdown_table(runs), f"{name} by count": table_of(runs, BY_COUNT)}
        if name in GOALS:
            by_model = runs_by_model(results[name])
            texts[f"{name} goals"] = goals_table(GOALS[name](Comparison(by_model, questions)))
            texts[f"{name} by source"] = source_table(questions, by_model, TITLES)
    if "photos_unsupervised" in results:
        named = {"photos_unsupervised": "presence, not supervised", "photos": "presence, supervised"}
        both = {named[name]: scores_by_model(results[name])["presence"] for name in named}
        texts["supervision"] = table_of(both, SUPERVISION)
    if "photos" in results:
        texts["photos summary"] = summary_of_photos(scores_by_model(results["photos"]))
    page = given.folder / "README.md"
    write_text(page, filled(page.read_text(), texts))
    toy = read_results(given.toy / "results.jsonl")
    for ending in ("svg",):
        drawn = given.folder / "figures"
        vqa_figures.draw_learning_curves(drawn / f"curves.{ending}", titled)
        vqa_figures.draw_trained_activations(drawn / f"activations.{ending}", titled, toy, TOY_SIDE_LENGTH)
        vqa_figures.draw_trained_presence(drawn / f"presence.{ending}", titled)
        if "photos" in results:
            vqa_figures.draw_examples(drawn / f"examples.{ending}", results["photos"])


if __name__ == "__main__":
    main()
