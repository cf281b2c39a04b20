"""`tallybox explain`: one static page that shows how a count came about."""

from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import click

from tallybox.cli.options import estimator_option, existing, file_to_write, source_options
from tallybox.cli.terminal import echo_line
from tallybox.detections.categories import COCO_CATEGORIES, category_id_of
from tallybox.detections.detections import Detections
from tallybox.detections.readers import read_detections
from tallybox.errors import InputError
from tallybox.explain.page import report_page
from tallybox.files import check_writable, write_text

WITH_SHIPPED = "counted with the estimator that ships with tallybox"


@click.command()
@click.argument("path", type=existing)
@click.option("--out", type=file_to_write, required=True, help="The page to write (.html).")
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Explain these only; may be repeated.")
@estimator_option
@source_options
@click.option("--image", "image_id", metavar="ID", help="Which image of a file of detections.")
@click.option(
    "--component",
    type=click.Choice(["counter", "presence"]),
    help="Explain this component untrained, instead of an estimator.",
)
def explain(
    path: Path,
    out: Path,
    categories: tuple[str, ...],
    file: Path | None,
    detector: str | None,
    texts: tuple[str, ...],
    image_id: str | None,
    component: Any,
) -> None:
    """Write one static page that shows how the count of an image came about.

    PATH is a photo, or a file of detections (.json, .json.gz, .csv, .csv.gz, .parquet). Without --category, every
    category that may be there is shown.
    """
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.explain.page_data import canvas_size, estimator_countings, page_data, untrained_countings
    from tallybox.photos.counter import PhotoCounter
    from tallybox.photos.detector import categories_of
    from tallybox.photos.images import read_photo
    from tallybox.photos.shipped import shipped_estimator
    from tallybox.photos.sources import find_sources
    from tallybox.photos.specs import DEFAULT_SPEC

    if component is not None and file is not None:
        raise InputError("--component explains an untrained component and --estimator a fitted one; give one of them")
    check_writable(out, [path])
    sources = find_sources([path])
    if len(sources) != 1:
        raise InputError(f"{path} must be one photo or one file of detections, but it is a folder; a page explains one")
    photo = read_photo(path) if sources[0].is_photo else None
    estimator = None if file is None else CountEstimator.load(file)
    if photo is not None:
        counter = PhotoCounter(detector or DEFAULT_SPEC, estimator, texts=texts)
        (image,), title, names = counter.detector.detect([photo]), path.name, categories_of(counter.detector)
        estimator = counter.estimator if component is None else None
    else:
        if detector or texts:
            raise InputError(f"--detector and --text are for photos, but {path} is a file of detections")
        image = _stored_image(path, read_detections(path), image_id)
        if component is None:
            estimator = estimator or shipped_estimator()
            (image,) = estimator.matched([image])
        names = image.category_names or COCO_CATEGORIES
        title = f"image {image.image_id} of {path.name}"
    if estimator is None:
        countings = untrained_countings(component, image, _category_ids(categories, names), names)
        how = "the paper's component, untrained" if component == "counter" else "presence counting, untrained"
    else:
        if file is None and photo is None:
            echo_line(
                "Explaining with the estimator that ships with tallybox; it is right only for boxes of PicoDet-S at "
                "640 px. For another detector give its own with --estimator FILE.",
                err=True,
            )
        countings = estimator_countings(estimator, image, list(categories) or None)
        if file is not None:
            how = f"counted with {file.name}"
        elif estimator.is_calibrated:
            how = WITH_SHIPPED
        else:
            how = f"counted with the scores of {detector} as they are, uncalibrated"
    write_text(out, report_page(page_data(f"How many in {title}?", how, canvas_size(image), countings, photo)))
    counts = ", ".join(counting["summary"]["headline"] for counting in countings)
    echo_line(f"{out}: {counts}", err=True)


def _stored_image(path: Path, stored: Iterable[Detections], image_id: str | None) -> Detections:
    """Return the named image of a file of detections, or its only one."""
    matching = (image for image in stored if image_id is None or str(image.image_id) == image_id)
    images = list(islice(matching, 2))
    if not images:
        expected = "at least one image" if image_id is None else f"image {image_id!r}"
        raise InputError(f"{path} must hold {expected}, but it does not")
    if len(images) > 1 and image_id is None:
        raise InputError(
            f"{path} holds several images ({images[0].image_id!r}, {images[1].image_id!r} ...), "
            "and a page explains one; name it with --image ID"
        )
    return images[0]


def _category_ids(categories: tuple[str, ...], names: Mapping[int, str]) -> list[int] | None:
    """Return the ids of categories by name or number."""
    is_id = {category: category.isdigit() and category not in names.values() for category in categories}
    return [int(text) if is_id[text] else category_id_of(text, names) for text in categories] or None
