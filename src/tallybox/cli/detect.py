"""`tallybox detect`: photos to a file of detections."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tallybox.cli import options
from tallybox.cli.terminal import echo_line, progress_bar
from tallybox.files import check_writable


@click.command()
@options.photos_argument
@click.option("--out", type=options.file_to_write, required=True, help="The file of detections.")
@options.detector_options
def detect(photos: Mapping[str, Path], out: Path, detector: str | None, **others: Any) -> None:
    """Write a detector's boxes for photos, folders of photos and patterns ("*.jpg") to a file for `fit` and `count`.

    A .parquet file keeps category names and photos without boxes; .json and .json.gz are COCO results.

    \b
    tallybox detect photos/ --out boxes.parquet
    tallybox detect "photos/*.jpg" --out boxes.json
    tallybox detect photos/ --detector ultralytics:own.pt --out boxes.parquet
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    from tallybox.photos.cache import detect_to_file

    check_writable(out, photos.values())
    settings = {name: value for name, value in {"spec": detector, **others}.items() if value}
    with options.reported_failures() as report:
        with progress_bar("detecting") as show:
            images = detect_to_file(photos, out, on_failure=report, on_progress=show, **settings)
        echo_line(f"Wrote {out}: {sum(map(len, images))} boxes in {len(images)} photos")
