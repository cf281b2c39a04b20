"""The paper's second table, in Markdown."""

from collections.abc import Mapping, Sequence

from tallybox.vqa.evaluation import format_score

TITLES = {"baseline": "Baseline", "nms": "+ NMS", "counter": "+ counter", "presence": "+ presence counter"}
COLUMNS = ("number", "count", "all", "pair_number", "pair_count", "pair_all")  # of the paper's second table


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
