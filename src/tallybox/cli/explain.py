"""`tallybox explain`: one static page that shows how a count came about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tallybox.errors import InputError, TallyboxError


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The page to write (.html)."
)
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Explain these only; may be repeated.")
@click.option("--estimator", "file", type=click.Path(path_type=Path), help="What `tallybox fit` wrote.")
@click.option("--image", "image_id", metavar="ID", help="Which image of a file of detections.")
@click.option(
    "--component",
    type=click.Choice(["paper", "presence"]),
    help="Explain this component untrained, instead of an estimator.",
)
def explain(
    path: Path,
    out: Path,
    categories: tuple[str, ...],
    file: Path | None,
    image_id: str | None,
    component: Any,
) -> None:
    """Write one static page that shows how the count of an image came about.

    PATH is a file of detections (.json, .json.gz, .csv, .csv.gz, .parquet).
    """
    from tallybox.detections.files import read_category_names
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.explorer.explanation import explained_by_estimator, explained_untrained, explanation_page
    from tallybox.runs import write_atomically

    if component is not None and file is not None:
        raise InputError("--component explains an untrained component and --estimator a fitted one; give one of them")
    image = _one_image(path, image_id)
    if component is not None:
        names = read_category_names(path)
        countings = explained_untrained(component, image, _category_ids(categories, names), names)
        source = (
            f"{path.name}, the untrained {'component of the paper' if component == 'paper' else 'presence counter'}"
        )
    elif file is not None:
        estimator = CountEstimator.load(file)
        countings = explained_by_estimator(estimator, image, list(categories) or None)
        source = f"{path.name}, counted by {file.name}"
    else:
        raise TallyboxError(
            "explaining detections needs an estimator that knows the detector; learn one with 'tallybox fit "
            "DETECTIONS LABELS --out FILE', then give it with --estimator FILE, or see --component paper"
        )
    title = f"How many in image {image.image_id}?"
    write_atomically(out, explanation_page(title, source, image, countings, None))
    said = ", ".join(f"{counting['count']:g} {counting['name']}" for counting in countings)
    click.echo(f"{out}: {said}", err=True)


def _one_image(path: Path, image_id: str | None) -> Any:
    """Return the wanted image of a file of detections, its only one where none is named."""
    from tallybox.detections.files import read_detections

    found: list[Any] = []
    for image in read_detections(path):
        if image_id is None or str(image.image_id) == image_id:
            found.append(image)
        if len(found) > 1:
            break
    if not found:
        named = "at least one image" if image_id is None else f"image {image_id!r}"
        raise InputError(f"{path} must hold {named}, but it does not")
    if len(found) > 1 and image_id is None:
        raise InputError(
            f"{path} holds several images ({found[0].image_id!r}, {found[1].image_id!r} ...), "
            "and a page explains one; name it with --image ID"
        )
    return found[0]


def _category_ids(categories: tuple[str, ...], names: Any) -> list[int] | None:
    """Return the ids of categories by name or number."""
    ids = {name: key for key, name in names.items()}
    found = []
    for category in categories:
        if category not in ids and not category.isdigit():
            raise InputError(f"category must be one of {', '.join(sorted(ids)[:8])} ..., but got {category!r}")
        found.append(ids[category] if category in ids else int(category))
    return found or None
