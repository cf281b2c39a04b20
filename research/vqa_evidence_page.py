"""Fill the tables and draw the figures of docs/results/vqa from the results that research/vqa_evidence.py left there.

    python research/vqa_evidence_page.py docs/results/vqa docs/results/toy/hard ../shared/data/vqa2-subset     # seconds

Text between `<!-- NAME -->` and `<!-- end -->` in README.md is written anew; all other text is left alone.
"""

from __future__ import annotations

import argparse
import math
import statistics
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import vqa_figures

from tallybox.files import write_text
from tallybox.runs import read_results
from tallybox.vqa.configuration import ModelName
from tallybox.vqa.data.photo_ids import photo_id
from tallybox.vqa.data.prepare import official_files
from tallybox.vqa.data.questions import read_pairs, read_questions, read_records
from tallybox.vqa.evaluation import TITLES, mean_and_deviation
from tallybox.vqa.scoring import score

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
    "+ counting module": "49.36±0.1 57.03±0.0 65.42±0.1 23.10±0.2 26.63±0.2 37.19±0.1",
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
UNSEEN = {"count": "Count", "pair_count": "Pair count"}
END = "<!-- end -->"
LINE = 128  # letters of a page's line
OTHERS = ("yes/no", "other")
TOY_SIDE_LENGTH = 0.5  # of the committed sweep; the paper has 0.2

Runs = dict[str, list[dict[str, float]]]  # by model: the scores of its seeds


def scores_by_model(results: list[dict[str, Any]]) -> Runs:
    """Return the scores of each model's seeds, in the paper's order of models."""
    found = {name: [run["scores"] for run in results if run["model"] == name] for name in get_args(ModelName)}
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


def difference(runs: Runs, one: str, other: str, key: str) -> tuple[float, float]:
    """Return how far one model is ahead of another in the mean, and the standard error of that."""
    ahead = statistics.fmean(run[key] for run in runs[one]) - statistics.fmean(run[key] for run in runs[other])
    variances = [statistics.variance([run[key] for run in runs[name]]) / len(runs[name]) for name in (one, other)]
    return ahead, math.sqrt(sum(variances))


def compared(runs: Runs, one: str, other: str, key: str, holds: Callable[[float, float], bool]) -> tuple[str, str]:
    """Return a difference with its standard error, and whether a goal is reached."""
    ahead, error = difference(runs, one, other, key)
    digits = 3 if key == "count_mae" else 2
    return f"{ahead:+.{digits}f} ± {error:.{digits}f}", "yes" if holds(ahead, error) else "**no**"


def goals_of_photos(runs: Runs) -> list[tuple[str, str, str]]:
    """Return the goals of experiment A: what, the difference measured, whether it is reached."""

    def clear(ahead: float, error: float) -> bool:
        return ahead > 2 * error

    mean_error = statistics.fmean(run["count_mae"] for run in runs["baseline"])
    rows = [
        (f"counter ahead of baseline, {name}", *compared(runs, "counter", "baseline", key, clear))
        for key, name in (("count", "count"), ("count_2_or_more", "true counts from 2"), ("pair_count", "count pairs"))
    ]

    def smaller(ahead: float, error: float) -> bool:
        return -ahead >= 0.08 * mean_error and -ahead > 2 * error

    rows += [
        (
            "counter ahead of baseline, mean error by at least 8 %",
            *compared(runs, "counter", "baseline", "count_mae", smaller),
        ),
        ("presence ahead of counter, count", *compared(runs, "presence", "counter", "count", lambda a, e: a > 0)),
        (
            "presence ahead of baseline by 3, count",
            *compared(runs, "presence", "baseline", "count", lambda a, e: a >= 3),
        ),
        (
            "NMS not ahead of baseline by two standard errors, count",
            *compared(runs, "nms", "baseline", "count", lambda a, e: a <= 2 * e),
        ),
    ]
    for model in ("counter", "presence"):
        for key in OTHERS:
            rows.append(
                (
                    f"{model} at most a point behind baseline, {key}",
                    *compared(runs, model, "baseline", key, lambda a, e: a >= -1),
                )
            )
    return rows


def goals_of_questions(runs: Runs) -> list[tuple[str, str, str]]:
    """Return the goals of experiment B: the paper's margins."""
    return [
        (
            "counter ahead of baseline by 5.3, count",
            *compared(runs, "counter", "baseline", "count", lambda a, e: a >= 5.3),
        ),
        (
            "counter ahead of baseline by 6.6, count pairs",
            *compared(runs, "counter", "baseline", "pair_count", lambda a, e: a >= 6.6),
        ),
        ("presence ahead of counter, count", *compared(runs, "presence", "counter", "count", lambda a, e: a > 0)),
    ]


GOALS: dict[str, Callable[[Runs], list[tuple[str, str, str]]]] = {
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


def scores_on_unseen_photos(results: list[dict[str, Any]], data: Path) -> Runs:
    """Return the scores of experiment B's counting questions about photos that no question to learn from is about."""
    files = official_files(data)
    seen = {photo_id(question.image_id) for question in read_questions(files["train"].questions)}
    counting = [one for one in read_records(files["val"].questions, files["val"].annotations) if one.counts]
    records = [one for one in counting if one.image_id not in seen]
    question_ids = {one.question_id for one in records}
    pairs = [pair for pair in read_pairs(files["val"].pairs) if question_ids >= {*pair}]

    def rescored(run: dict[str, Any]) -> dict[str, Any]:
        answers = zip((one.question_id for one in counting), run["count_answers"], strict=True)
        kept = {question_id: answer for question_id, answer in answers if question_id in question_ids}
        return run | {"scores": dict(score(kept, records, pairs))}

    return scores_by_model([rescored(run) for run in results])


def goals_table(rows: list[tuple[str, str, str]]) -> str:
    """Return goals in Markdown."""
    lines = ["| goal | difference ± standard error | reached |", "|---|---:|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def attention_table(results: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return how far attention tells the examples' proposals apart (seed 0), and what is counted from it."""
    lines = ["| experiment | model | least and most attention of a photo, means | counted, by true count 1 … 6 |"]
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
    parser.add_argument("questions", type=Path, help="the questions of experiment B")
    given = parser.parse_args()
    results = {name: read_results(given.folder / name / "results.jsonl") for name in EXPERIMENTS}
    results = {name: runs for name, runs in results.items() if runs}
    titled = {EXPERIMENTS[name]: results[name] for name in DRAWN if name in results}
    texts = {"paper": paper_table(), "machine": machine(results), "attention": attention_table(results)}
    for name in results:
        runs = scores_by_model(results[name])
        texts |= {f"{name} table": vqa_figures.markdown_table(runs), f"{name} by count": table_of(runs, BY_COUNT)}
        if name in GOALS:
            texts[f"{name} goals"] = goals_table(GOALS[name](runs))
    if "photos_unsupervised" in results:
        named = {"photos_unsupervised": "presence, not supervised", "photos": "presence, supervised"}
        both = {named[name]: scores_by_model(results[name])["presence"] for name in named}
        texts["supervision"] = table_of(both, SUPERVISION)
    if "photos" in results:
        texts["photos summary"] = summary_of_photos(scores_by_model(results["photos"]))
    if "questions" in results:
        unseen = scores_on_unseen_photos(results["questions"], given.questions)
        texts |= {"unseen table": table_of(unseen, UNSEEN), "unseen goals": goals_table(goals_of_questions(unseen))}
    page = given.folder / "README.md"
    write_text(page, filled(page.read_text(), texts))
    toy = read_results(given.toy / "results.jsonl")
    for ending in ("svg", "png"):
        drawn = given.folder / "figures"
        vqa_figures.draw_learning_curves(drawn / f"curves.{ending}", titled)
        vqa_figures.draw_trained_activations(drawn / f"activations.{ending}", titled, toy, TOY_SIDE_LENGTH)
        vqa_figures.draw_trained_presence(drawn / f"presence.{ending}", titled)
        if "photos" in results:
            vqa_figures.draw_examples(drawn / f"examples.{ending}", results["photos"])


if __name__ == "__main__":
    main()
