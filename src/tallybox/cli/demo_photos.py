"""The end of `tallybox demo`: real photos, counted on the spot, and what is written of them."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from tallybox.cli.count_output import CountedImage, TextOutput
from tallybox.errors import TallyboxError


def tell_photos(console: Console, folder: Path) -> None:
    """Count in the two sample photos and write what can be looked at; say how to install it where that is missing."""
    try:
        from tallybox.photos.packaged import sample_photos

        paths = sample_photos()
    except TallyboxError as error:
        console.print(f"[bold]And in real photos?[/bold]  {error}")
        return
    from tallybox.explorer.explanation import explained_by_estimator, explanation_page
    from tallybox.explorer.photo_data import photo_href
    from tallybox.photos.detector import YoloV4Tiny
    from tallybox.photos.images import read_photo
    from tallybox.photos.outlines import draw_counts, save_picture
    from tallybox.photos.shipped import shipped_estimator
    from tallybox.runs import write_atomically

    console.print("[bold]And in real photos?[/bold]  YOLOv4-tiny proposes boxes, an estimator that learned from")
    console.print("3,000 labelled photos counts them. Here are the two that come with the detector:\n")
    estimator = shipped_estimator()
    photos = [read_photo(path) for path in paths]
    tables = TextOutput(estimator, every=False)
    written: list[tuple[str, Path]] = []
    for path, photo, image in zip(paths, photos, YoloV4Tiny().detect(photos), strict=True):
        explanations = estimator.explain(image)
        predictions = {key: explanation.prediction for key, explanation in explanations.items()}
        tables.write(CountedImage(image, predictions, Path(path.name)))
        named = {estimator.category_name(key): explanation for key, explanation in explanations.items()}
        picture = folder / f"{path.stem}_counted.jpg"
        save_picture(draw_counts(photo, image, named), picture)
        written.append(("what was counted, outlined", picture))
    # Of the last photo, the bus: how its counts came about, box by box.
    page = folder / f"{path.stem}.html"
    how = "counted with the estimator that comes with tallybox"
    countings = explained_by_estimator(estimator, image, None)
    write_atomically(page, explanation_page(f"How many in {path.name}?", how, image, countings, photo_href(photo)))
    written.append(("how the counts came about: open it in a browser", page))
    console.print("[bold]Look at them:[/bold]")
    for what, file in written:
        console.print(f"  {file}  [dim]{what}[/dim]", soft_wrap=True)
    console.print("\nYour own:  tallybox count PHOTO... --save FOLDER")
    console.print("           tallybox explain PHOTO --out page.html\n")
