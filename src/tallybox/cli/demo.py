"""`tallybox demo`: the sample photos next to their true counts, then how the counter counts three cats."""

from pathlib import Path

import click
import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from tallybox.cli.evaluate import figures_table
from tallybox.cli.options import out_folder
from tallybox.counter.module import Counter
from tallybox.detections.categories import plural
from tallybox.errors import TallyboxError
from tallybox.explain.page import explain_page
from tallybox.explain.page_data import canvas_size, estimator_counts, page_data
from tallybox.explain.scenes import CAT_LABELS, cats
from tallybox.files import import_optional, write_text
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.images import read_photo
from tallybox.photos.shipped import SAMPLE_COUNTS, sample_photos

SHADES = "·░▒▓█"  # 0 to 1; shades rather than colours, so that every terminal shows them


@click.command()
@click.option("--out", type=out_folder, default="runs/demo", show_default=True, help="Folder for the pages.")
def demo(out: Path) -> None:
    """Count three photos, compare with their true counts, and show how it works. You need no files.

    \b
    tallybox demo
    tallybox demo --out pages/
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    console = Console(highlight=False)
    show_photos(console, out)
    show_idea(console)
    console.print("[bold]Next:[/bold]")
    for command in ("tallybox count PHOTO...", "tallybox explain PHOTO", "tallybox serve"):
        console.print(f"  {command}")


def show_photos(console: Console, folder: Path) -> None:
    """Count the sample photos with three methods, and write a page about each."""
    try:
        import_optional("PIL", needed_for="counting photos", install="'tallybox[photos]'", package="pillow")
        counter = PhotoCounter()
    except TallyboxError as error:
        console.print(f"[bold]Photos[/bold]  {escape(str(error))}\n")
        return
    console.print("\n[bold]Three photos that the bundled estimator was not fitted to[/bold]\n")
    table = figures_table("", "true", "tallybox", "90 %", "NMS", "sum of scores")
    errors = np.zeros(3)
    pages = []
    for path in reversed(sample_photos()):
        photo, truth = read_photo(path), SAMPLE_COUNTS[path.name]
        (image,) = counter.detector.detect([photo])
        table.add_row(f"[bold]{path.name}[/bold]")
        for count in estimator_counts(counter.estimator, image, list(truth)):
            true_count, baselines = truth[count["name"]], count["baselines"]
            errors += np.abs(np.array([count["count"], baselines["nms"], baselines["sum"]]) - true_count)
            interval = f"{count['low']}–{count['high']}" if count["low"] < count["high"] else str(count["low"])
            numbers = (f"[bold]{count['count']}[/bold]", interval, str(baselines["nms"]), f"{baselines['sum']:.1f}")
            table.add_row(f"  {plural(count['name'])}", str(true_count), *numbers)
        counts = estimator_counts(counter.estimator, image, None)
        for count in counts:
            count["truth"] = truth.get(count["name"], 0)
        title = f"How many in {path.name}?"
        pages.append(folder / f"{path.stem}.html")
        write_text(pages[-1], explain_page(page_data(title, "Bundled estimator", canvas_size(image), counts, photo)))
    ours, nms, scores = (f"{error:.0f}" for error in errors)
    table.add_row("[dim]sum of errors[/dim]", "", ours, "", nms, scores)
    console.print(table)
    console.print("\nOpen in a browser:")
    for page in pages:
        console.print(f"  {page.resolve().as_uri()}", soft_wrap=True)


def show_idea(console: Console) -> None:
    """Show how the paper's counter counts three cats in four boxes."""
    boxes, counter = cats(), Counter(max_objects=4)
    with torch.no_grad():
        trace = counter.explain(torch.ones(4), boxes)
        dark = counter.count(torch.tensor([1.0, 1.0, 1.0, 0.0]), boxes).item()
    console.print("\n[bold]How does it work?[/bold]  Three cats, one of them detected twice:\n")
    console.print(f"  {'    '.join(f'{number} {label}' for number, label in enumerate(CAT_LABELS, start=1))}\n")
    matrices = Table.grid(padding=(0, 4))
    titles = ("  A = a aᵀ", "  D = 1 - IoU", "  Ã = A ⊙ D", "  C")
    drawn = (trace.relevance, trace.distance, trace.deduplicated, trace.count_matrix)
    matrices.add_row(*map(shade_matrix, titles, drawn))
    console.print(matrices)
    console.print("\nA  connects each pair of boxes with an edge: 16 edges, and √16 = 4 boxes.")
    console.print("D  is 0 for boxes at the same place, so that Ã has no edges within a cat.")
    console.print("C  scales the edges of duplicates down, and adds each cat's edge to itself.\n")
    edges, cats_counted = trace.count_matrix.sum().item(), trace.count.item()
    console.print(f"[bold]How many cats?[/bold]       √(sum of C) = √{edges:.0f} = [bold]{cats_counted:.2f}[/bold]")
    console.print(f"[bold]How many dark cats?[/bold]  With score 0 for the white cat: [bold]{dark:.2f}[/bold]\n")


def shade_matrix(title: str, matrix: Tensor) -> str:
    """Draw a matrix as blocks, darker for larger values in [0, 1]."""
    lines = [title]
    for number, row in enumerate(matrix.tolist(), start=1):
        blocks = "".join(SHADES[round(min(max(value, 0), 1) * (len(SHADES) - 1))] * 2 for value in row)
        lines.append(f"  {number} {blocks}")
    return "\n".join(lines)
