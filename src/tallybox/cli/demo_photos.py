"""The end of `tallybox demo`: real photos, counted on the spot, and what is written of them."""

from __future__ import annotations

from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from tallybox.cli.count_output import text_output
from tallybox.errors import InputError, TallyboxError

if TYPE_CHECKING:
    from tallybox.detections.container import Detections
    from tallybox.photos.counter import PhotoCounter


def show_photos(console: Console, folder: Path) -> None:
    """Count in the three sample photos and write what can be looked at; name what to install where it is missing."""
    from tallybox.photos.shipped import sample_photos

    try:
        counter = _photo_counter()
    except TallyboxError as error:
        console.print(f"[bold]And in real photos?[/bold]  {escape(str(error))}")
        return
    from tallybox.photos.outlines import save_picture

    console.print("[bold]And in real photos?[/bold]  PicoDet-S proposes boxes. An estimator that learned")
    console.print("from 3,000 labelled photos, none of these three, counts them:\n")
    written: list[tuple[Path, str]] = []
    detected: list[Detections] = []
    with text_output(every=False) as print_counts:
        for counted in counter.count_each(sample_photos(), keep_photos=True):
            assert counted.detections is not None
            assert counted.predictions is not None
            detected.append(counted.detections)
            print_counts(counted.path.name, counted.predictions, counted)
            picture = folder / f"{counted.path.stem}_counted.jpg"
            try:
                save_picture(counter.draw(counted), picture)
                written.append((picture, "what was counted, outlined"))
            except InputError:  # it was there before; pictures of version 0.1 do not say that tallybox drew them
                written.append((picture, "another picture, which was there before and is kept"))
    written.append(
        (_write_page(counter, sample_photos()[0], detected[0], folder), "how they came about: open it in a browser")
    )
    console.print("[bold]Look at them:[/bold]")
    for file, what in written:
        console.print(f"  {file}  [dim]{what}[/dim]", soft_wrap=True)
    console.print("\n[bold]Go on:[/bold]")
    activate = Path(".venv/bin/activate")  # where `make demo` installed it
    for command in (
        *([f"source {activate}"] if activate.exists() and not which("tallybox") else []),
        "tallybox count PHOTO... --save FOLDER",
        "tallybox explain PHOTO --out page.html",
        "tallybox ask PHOTO 'How many dogs are there?'",
        "tallybox serve",
    ):
        console.print(f"  {command}")


def _photo_counter() -> PhotoCounter:
    from tallybox.files import import_optional
    from tallybox.photos.counter import PhotoCounter

    import_optional("PIL", needed_for="counting photos", install="'tallybox[photos]'", package="pillow")
    return PhotoCounter()


def _write_page(counter: PhotoCounter, path: Path, image: Detections, folder: Path) -> Path:
    from tallybox.drawing.page_data import canvas_size, estimator_countings, page_data
    from tallybox.files import write_text
    from tallybox.photos.images import read_photo
    from tallybox.report.page import report_page

    page = folder / f"{path.stem}.html"
    how = "counted with the estimator that ships with tallybox"
    countings = estimator_countings(counter.estimator, image, None)
    data = page_data(f"How many in {path.name}?", how, canvas_size(image), countings, read_photo(path))
    write_text(page, report_page(data))
    return page
