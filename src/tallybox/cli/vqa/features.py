"""`tallybox vqa features`: region features of one's own photos."""

import json
import time
from pathlib import Path

import click

from tallybox.cli.options import json_option, reported_failures
from tallybox.cli.progress import progress_bar
from tallybox.errors import InputError


@click.command()
@click.argument("paths", metavar="PHOTOS...", nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder of features.")
@json_option
def features(paths: tuple[str, ...], out: Path, as_json: bool) -> None:
    """Write the regions of photos, folders of photos and patterns ("*.jpg") for `tallybox vqa prepare`.

    Features are PicoDet's scores of 80 categories. The same command goes on after an interruption, or adds photos. A
    photo that cannot be read is reported and the others are written; the exit status is then 1.
    """
    from tallybox.photos.sources import find_photos
    from tallybox.vqa.regions import write_photo_features

    start = time.perf_counter()
    try:
        photos = find_photos(paths)
    except InputError as error:
        raise click.UsageError(str(error)) from error
    with reported_failures() as report:
        with progress_bar("describing") as show:
            number = write_photo_features(photos, out, on_failure=report, on_progress=show)
        seconds = round(time.perf_counter() - start, 2)
        if as_json:
            click.echo(json.dumps({"photos": number, "seconds": seconds}))
            return
        click.echo(f"{out}: {number} photos; {seconds} s")
        click.echo(f"next: tallybox vqa prepare QUESTIONS --features {out} --out PREPARED")
