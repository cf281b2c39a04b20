"""`tallybox detect`: photos to a file of detections."""

from pathlib import Path
from typing import Any

import click

from tallybox.cli.options import detector_options, file_to_write, reported_failures
from tallybox.cli.progress import progress_bar
from tallybox.cli.terminal import echo_line
from tallybox.errors import InputError
from tallybox.files import check_writable


@click.command()
@click.argument("paths", metavar="PHOTOS...", nargs=-1, required=True)
@click.option("--out", type=file_to_write, required=True, help="The file of detections.")
@detector_options
def detect(paths: tuple[str, ...], out: Path, detector: str | None, **options: Any) -> None:
    """Write what a detector finds in photos, folders of photos and patterns ("*.jpg"), for `tallybox fit` and `count`.

    The file is .parquet, which keeps the names of the categories and photos without boxes, or COCO results, .json or
    .json.gz. A photo is known by its path from the folder that was named, or by its name. A photo that cannot be read
    is reported and the others are written; the exit status is then 1.
    """
    from tallybox.photos.cache import detect_to_file
    from tallybox.photos.sources import find_photos

    try:
        photos = find_photos(paths)
    except InputError as error:
        raise click.UsageError(str(error)) from error
    check_writable(out, photos.values())
    settings = {name: value for name, value in {"spec": detector, **options}.items() if value}
    with reported_failures() as report:
        with progress_bar("detecting") as show:
            images = detect_to_file(photos, out, on_failure=report, on_progress=show, **settings)
        echo_line(f"Wrote {out}: {len(images)} photos, {sum(map(len, images))} boxes")
