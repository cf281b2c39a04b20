"""`tallybox explain`: one static page that explains the counts of an image."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import click

from tallybox.cli import options
from tallybox.cli.terminal import echo_line
from tallybox.detections.detections import Detections
from tallybox.detections.readers import read_detections
from tallybox.errors import InputError
from tallybox.explain.page import explain_page
from tallybox.files import check_writable, write_text


@click.command()
@click.argument("path", type=options.existing)
@click.option("--out", type=options.file_to_write, help="The page to write.  [default: PATH with the suffix .html]")
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Explain these only; may be repeated.")
@options.estimator_option
@options.source_options
@click.option("--image", "image_id", metavar="ID", help="Which image of a file of detections.")
def explain(
    path: Path,
    out: Path | None,
    categories: tuple[str, ...],
    file: Path | None,
    detector: str | None,
    texts: tuple[str, ...],
    image_id: str | None,
) -> None:
    """Write one page that explains the counts of a photo, or of an image in a file of detections.

    \b
    tallybox explain photo.jpg
    tallybox explain photo.jpg --category person --out people.html
    tallybox explain detections.json --image 1532 --estimator own.safetensors
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.explain.page_data import canvas_size, estimator_counts, page_data
    from tallybox.photos.counter import PhotoCounter
    from tallybox.photos.detector import DEFAULT_SPEC
    from tallybox.photos.images import read_photo
    from tallybox.photos.shipped import shipped_estimator
    from tallybox.photos.sources import find_sources
    from tallybox.photos.tiles import window_side

    out = out or path.with_suffix(".html")
    check_writable(out, [path] if file is None else [path, file])
    sources = find_sources([path])
    if len(sources) != 1:
        raise InputError(f"{path} is a folder; a page explains one photo or one image of a file of detections.")
    photo = read_photo(path) if sources[0].is_photo else None
    if photo is not None:
        counter = PhotoCounter(detector or DEFAULT_SPEC, file, texts=texts)
        (image,), estimator, title = counter.detector.detect([photo]), counter.estimator, path.name
        if window_side(photo.size_wh, "auto", fitted_side=estimator.fitted.longer_side):
            note = "explain looks at the whole photo; 'tallybox count' may also count smaller objects, in windows."
            echo_line(note, err=True)
    else:
        if detector or texts:
            raise InputError(f"--detector and --text are for photos, but {path} is a file of detections.")
        image = _stored_image(path, read_detections(path), image_id)
        if file is None:
            note = "Using the bundled estimator, fitted to PicoDet-S; for another detector pass --estimator FILE."
            echo_line(note, err=True)
        estimator = shipped_estimator() if file is None else CountEstimator.load(file)
        (image,) = estimator.matched([image])
        title = f"image {image.image_id} of {path.name}"
    counts = estimator_counts(estimator, image, list(categories) or None)
    bundled = "Bundled estimator" if estimator.is_calibrated else f"Scores of {detector}, not calibrated"
    source = bundled if file is None else f"Estimator {file.name}"
    write_text(out, explain_page(page_data(f"How many in {title}?", source, canvas_size(image), counts, photo)))
    echo_line(f"{out}: {', '.join(count['label'] for count in counts)}", err=True)


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
