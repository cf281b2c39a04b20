"""`tallybox categories`: list the categories that an estimator counts."""

from pathlib import Path

import click

from tallybox.cli.options import any_path, json_option
from tallybox.cli.terminal import echo_json, echo_line


@click.command()
@click.argument("estimator", type=any_path, required=False)
@json_option
def categories(estimator: Path | None, as_json: bool) -> None:
    """List the categories that ESTIMATOR counts; the bundled one counts COCO's 80.

    \b
    tallybox categories
    tallybox categories own.safetensors
    tallybox categories --json
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.photos.shipped import shipped_estimator

    fitted = (shipped_estimator() if estimator is None else CountEstimator.load(estimator)).fitted
    rows = [
        {"id": category_id, "name": name, "learned": category_id in fitted.category_ids}
        for category_id, name in sorted(fitted.categories.items())
    ]
    if as_json:
        echo_json({"categories": rows})
        return
    for row in rows:
        echo_line(f"{row['id']:>5}  {row['name']}" + ("" if row["learned"] else "  (no training labels)"))
