"""`tallybox explain`: one static page that explains the counts of an image."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tallybox.cli.options import estimator_option, existing, file_to_write, source_options
from tallybox.cli.terminal import echo_line
from tallybox.detections.categories import COCO_CATEGORIES, category_id_of
from tallybox.detections.detections import Detections
from tallybox.detections.readers import read_detections
from tallybox.errors import InputError
from tallybox.explain.page import explain_page
from tallybox.files import check_writable, write_text

if TYPE_CHECKING:
    from tallybox.estimator.estimator import CountEstimator


@click.command()
@click.argument("path", type=existing)
@click.option("--out", type=file_to_write, help="The page to write.  [default: PATH with the suffix .html]")
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
    out: Path | None,
    categories: tuple[str, ...],
    file: Path | None,
    detector: str | None,
    texts: tuple[str, ...],
    image_id: str | None,
    component: Any,
) -> None:
    """Write one page that explains the counts of a photo, or of an image in a file of detections.

    \b
    tallybox explain photo.jpg
    tallybox explain photo.jpg --category person --out people.html
    tallybox explain detections.json --image 1532 --estimator own.safetensors
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from tallybox.explain.page_data import canvas_size, estimator_counts, page_data, untrained_counts
    from tallybox.photos.counter import PhotoCounter
    from tallybox.photos.detector import DEFAULT_SPEC, categories_of
    from tallybox.photos.images import read_photo
    from tallybox.photos.sources import find_sources
    from tallybox.photos.tiles import window_side

    out = out or path.with_suffix(".html")
    if component is not None and file is not None:
        raise InputError("--component explains an untrained component and --estimator a fitted one; give one of them.")
    check_writable(out, [given for given in (path, file) if given is not None])
    sources = find_sources([path])
    if len(sources) != 1:
        raise InputError(f"{path} is a folder; a page explains one photo or one image of a file of detections.")
    photo = read_photo(path) if sources[0].is_photo else None
    if photo is not None:
        counter = PhotoCounter(detector or DEFAULT_SPEC, file, texts=texts)
        (image,), title, names = counter.detector.detect([photo]), path.name, categories_of(counter.detector)
        estimator: CountEstimator | None = counter.estimator
        uncalibrated = f"Scores of {detector}, not calibrated"
        if window_side(photo.size_wh, "auto", fitted_side=counter.estimator.fitted.longer_side):
            note = "explain looks at the whole photo; 'tallybox count' may also count smaller objects, in windows."
            echo_line(note, err=True)
    else:
        if detector or texts:
            raise InputError(f"--detector and --text are for photos, but {path} is a file of detections.")
        image = _stored_image(path, read_detections(path), image_id)
        estimator, uncalibrated = None if component else _estimator_of_detections(file), "Not calibrated"
        if estimator is not None:
            (image,) = estimator.matched([image])
        names = image.category_names or COCO_CATEGORIES
        title = f"image {image.image_id} of {path.name}"
    if estimator is None or component is not None:
        ids = [int(name) if name.isdigit() else category_id_of(name, names) for name in categories]
        counts, source = untrained_counts(component, image, ids or None, names), "Untrained component"
    else:
        counts = estimator_counts(estimator, image, list(categories) or None)
        bundled = "Bundled estimator" if estimator.is_calibrated else uncalibrated
        source = bundled if file is None else f"Estimator {file.name}"
    write_text(out, explain_page(page_data(f"How many in {title}?", source, canvas_size(image), counts, photo)))
    echo_line(f"{out}: {', '.join(count['label'] for count in counts)}", err=True)


def _estimator_of_detections(file: Path | None) -> CountEstimator:
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.photos.shipped import shipped_estimator

    if file is not None:
        return CountEstimator.load(file)
    echo_line("Using the bundled estimator, fitted to PicoDet-S; for another detector pass --estimator FILE.", err=True)
    return shipped_estimator()


def _stored_image(path: Path, stored: Iterable[Detections], image_id: str | None) -> Detections:
    """Return the named image of a file of detections, or its only one."""
    matching = (image for image in stored if image_id is None or str(image.image_id) == image_id)
    images = list(islice(matching, 2))
    if not images:
        raise InputError(f"{path} has no image{'' if image_id is None else f' {image_id!r}'}.")
    if len(images) > 1 and image_id is None:
        first, second = (image.image_id for image in images)
        raise InputError(f"{path} has several images ({first!r}, {second!r} ...); choose one with --image ID.")
    return images[0]
