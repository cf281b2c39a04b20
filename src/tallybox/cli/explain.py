"""`tallybox explain`: one static page that shows how a count came about."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import click

from tallybox.cli.terminal import echo_line
from tallybox.detections.category_names import COCO_CATEGORIES, category_id_of, check_same_names
from tallybox.detections.container import Detections
from tallybox.detections.readers import read_category_names, read_detections, stored_category_names
from tallybox.errors import InputError
from tallybox.files import write_text
from tallybox.report.page import report_page

WITH_SHIPPED = "counted with the estimator that ships with tallybox"


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The page to write (.html)."
)
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Explain these only; may be repeated.")
@click.option("--estimator", "file", type=click.Path(path_type=Path), help="An estimator from `tallybox fit`.")
@click.option("--image", "image_id", metavar="ID", help="Which image of a file of detections.")
@click.option(
    "--component",
    type=click.Choice(["paper", "presence"]),
    help="Explain this component untrained, instead of an estimator.",
)
def explain(
    path: Path, out: Path, categories: tuple[str, ...], file: Path | None, image_id: str | None, component: Any
) -> None:
    """Write one static page that shows how the count of an image came about.

    PATH is a photo, or a file of detections (.json, .json.gz, .csv, .csv.gz, .parquet). Without --category, every
    category that may be there is shown.
    """
    from tallybox.drawing.page_data import canvas_size, estimator_countings, page_data, untrained_countings
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.photos.images import read_photo
    from tallybox.photos.picodet import PicoDet
    from tallybox.photos.shipped import shipped_estimator
    from tallybox.photos.sources import find_sources

    if component is not None and file is not None:
        raise InputError("--component explains an untrained component and --estimator a fitted one; give one of them")
    sources = find_sources([path])
    if len(sources) != 1:
        raise InputError(f"{path} must be one photo or one file of detections, but it is a folder; a page explains one")
    estimator, photo = None, read_photo(path) if sources[0].is_photo else None
    if component is None:
        estimator = shipped_estimator() if file is None else CountEstimator.load(file)
    known = COCO_CATEGORIES if estimator is None else estimator.fitted.categories
    if photo is not None:
        image, names, shown = PicoDet().detect([photo])[0], COCO_CATEGORIES, path.name
    else:
        image, names = _stored_image(path, image_id, known), read_category_names(path)
        shown = f"image {image.image_id} of {path.name}"
    if estimator is None:
        countings = untrained_countings(component, image, _category_ids(categories, names), names)
        how = "the paper's component, untrained" if component == "paper" else "presence counting, untrained"
    else:
        if file is None and photo is None:
            echo_line(
                "Explaining with the estimator that ships with tallybox; it is right only for boxes of PicoDet-S at "
                "640 px. For another detector give its own with --estimator FILE.",
                err=True,
            )
        if photo is not None:
            check_same_names(known, names, "PicoDet")
        else:
            check_same_names(known, stored_category_names(path, known), str(path))
        countings = estimator_countings(estimator, image, list(categories) or None)
        how = WITH_SHIPPED if file is None else f"counted with {file.name}"
    write_text(out, report_page(page_data(f"How many in {shown}?", how, canvas_size(image), countings, photo)))
    counts = ", ".join(counting["summary"]["headline"] for counting in countings)
    echo_line(f"{out}: {counts}", err=True)


def _stored_image(path: Path, image_id: str | None, known: Mapping[int, str]) -> Detections:
    """Return the wanted image of a file of detections, its only one where none is named."""
    wanted = (image for image in read_detections(path, known) if image_id is None or str(image.image_id) == image_id)
    found = list(islice(wanted, 2))
    if not found:
        named = "at least one image" if image_id is None else f"image {image_id!r}"
        raise InputError(f"{path} must hold {named}, but it does not")
    if len(found) > 1 and image_id is None:
        raise InputError(
            f"{path} holds several images ({found[0].image_id!r}, {found[1].image_id!r} ...), "
            "and a page explains one; name it with --image ID"
        )
    return found[0]


def _category_ids(categories: tuple[str, ...], names: Mapping[int, str]) -> list[int] | None:
    """Return the ids of categories by name or number."""
    is_id = {category: category.isdigit() and category not in names.values() for category in categories}
    return [int(one) if is_id[one] else category_id_of(one, names) for one in categories] or None
