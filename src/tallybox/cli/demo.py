"""`tallybox demo`: the paper's example of three cats in the terminal, then real photos; all numbers are computed."""

from pathlib import Path
from shutil import which

import click
import torch
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from torch import Tensor

from tallybox.cli.count_output import text_output
from tallybox.cli.explain import WITH_SHIPPED
from tallybox.cli.options import any_path
from tallybox.counter.module import Counter
from tallybox.counter.trace import CountTrace
from tallybox.errors import InputError, TallyboxError
from tallybox.explain.page import report_page
from tallybox.explain.page_data import canvas_size, estimator_countings, page_data
from tallybox.explain.scenes import CatProposals, cats
from tallybox.files import import_optional, write_text
from tallybox.photos.counter import PhotoCounter
from tallybox.photos.shipped import sample_photos

SHADES = "·░▒▓█"  # 0 to 1; shades rather than colours, so that every terminal shows them


@click.command()
@click.option("--figure", type=any_path, help="Also draw the cats as a picture (.svg or .png).")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("runs/demo"), help="For the counted photos."
)
def demo(figure: Path | None, out: Path) -> None:
    """Show how the component counts, then count in three real photos; no files needed."""
    console = Console(highlight=False)
    proposals = cats()
    counter = Counter(max_objects=4)
    with torch.no_grad():
        show_proposals(console, proposals)
        show_count(console, counter.explain(torch.ones(4), proposals.boxes))
        show_other_question(console, counter, proposals)
        show_soft_attention(console, counter, proposals)
    if figure is not None:
        from tallybox.explain.cats import draw_cats

        draw_cats(figure)
        console.print(f"Picture written to {figure}\n")
    show_photos(console, out)


def show_proposals(console: Console, proposals: CatProposals) -> None:
    """Show the proposals; those with the same box share a frame."""
    labels: dict[tuple[float, ...], list[str]] = {}
    for number, (box, label) in enumerate(zip(proposals.boxes.tolist(), proposals.labels, strict=True), start=1):
        labels.setdefault(tuple(box), []).append(f"{number} {label}")
    console.print("\n[bold]How many cats?[/bold]  A detector gives four proposals. One cat was found twice.\n")
    console.print(in_columns(*(Panel("\n".join(names), width=20, height=6) for names in labels.values())))
    console.print("\nEvery proposal shows a cat, so each has the attention weight 1.\n")


def show_count(console: Console, trace: CountTrace) -> None:
    """Show the matrices and the count that they give."""
    console.print(
        in_columns(
            shade_matrix("A = a aᵀ", trace.relevance),
            shade_matrix("D = 1 - IoU", trace.distance),
            shade_matrix("Ã = A ⊙ D", trace.deduplicated),
            shade_matrix("C", trace.count_matrix),
        )
    )
    edges = trace.count_matrix.sum().item()
    console.print("\n  [dim]0 [/dim]" + "".join(shade * 2 for shade in SHADES) + "[dim] 1[/dim]\n")
    console.print("A  joins proposals that are both relevant: 16 edges, √16 = 4, the plain sum.")
    console.print("D  is 0 where two boxes are the same, so Ã has no edges within a cat.")
    console.print(f"C  shares the edges of similar proposals, here scaled by s = {format_values(trace.scale)},")
    console.print("   and puts each cat's edge to itself back.\n")
    console.print(f"[bold]count = √(sum of C) = √{edges:.2f} = {trace.count.item():.2f}[/bold]", end="")
    console.print(f"     summing the weights would say {trace.attention.sum().item():.2f}")
    console.print(f"features for a classifier: {format_values(trace.features)}  (of 0, 1, 2, 3, 4)\n")


def show_other_question(console: Console, counter: Counter, proposals: CatProposals) -> None:
    """Count fewer of the cats: irrelevant proposals have weight 0 (the paper's figure 1)."""
    attention = torch.tensor([1.0, 1.0, 1.0, 0.0])
    count = counter.count(attention, proposals.boxes).item()
    console.print(
        f"[bold]How many dark cats?[/bold]  The white one is irrelevant: weights {format_values(attention)}.\n"
        f"[bold]count = {count:.2f}[/bold]     summing the weights would say {attention.sum().item():.2f}\n"
    )


def show_soft_attention(console: Console, counter: Counter, proposals: CatProposals) -> None:
    """Show what normalised attention loses (paper, section "Problems with soft attention")."""
    cat_feature = torch.tensor([0.3, 0.9, 0.1])
    boxes = proposals.boxes[[1, 2]]
    title = "What softmax attention would have lost"
    table = Table(
        "photo", "softmax weights", "attended feature", "our count", title=title, title_justify="left", box=None
    )
    for number, photo in enumerate(("one cat", "two identical cats"), start=1):
        softmax = torch.zeros(number).softmax(0)
        attended = softmax @ cat_feature.expand(number, 3)
        count = counter.count(torch.ones(number), boxes[:number]).item()
        table.add_row(photo, format_values(softmax), format_values(attended), f"{count:.2f}")
    console.print(table)
    console.print(
        "\nWeights that sum to 1 average two cats back into one: same feature, no count.\n"
        "The component counts from the weights before they are normalised.\n"
        "Try it with boxes of your own: tallybox serve\n"
    )


def show_photos(console: Console, folder: Path) -> None:
    """Count in the three sample photos and write what can be looked at; name what to install where it is missing."""
    try:
        import_optional("PIL", needed_for="counting photos", install="'tallybox[photos]'", package="pillow")
        counter = PhotoCounter()
    except TallyboxError as error:
        console.print(f"[bold]And in real photos?[/bold]  {escape(str(error))}")
        return
    from tallybox.photos.outlines import save_picture

    console.print("[bold]And in real photos?[/bold]  PicoDet-S proposes boxes. An estimator that learned")
    console.print("from 3,000 labelled photos, none of these three, counts them:\n")
    written = []
    photos = list(counter.count_each(sample_photos(), keep_photos=True))
    with text_output(every=False) as print_counts:
        for counted in photos:
            assert counted.path is not None
            print_counts(counted)
            picture = folder / f"{counted.path.stem}_counted.jpg"
            try:
                save_picture(counter.draw(counted), picture)
                written.append((picture, "what was counted, outlined"))
            except InputError:  # it was there before; pictures of version 0.1 do not say that tallybox drew them
                written.append((picture, "another picture, which was there before and is kept"))
    first, path = photos[0], sample_photos()[0]
    page = folder / f"{path.stem}.html"
    assert first.detections is not None
    countings = estimator_countings(counter.estimator, first.detections, None)
    size_wh, title = canvas_size(first.detections), f"How many in {path.name}?"
    write_text(page, report_page(page_data(title, WITH_SHIPPED, size_wh, countings, first.photo)))
    written.append((page, "how they came about: open it in a browser"))
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


def in_columns(*parts: RenderableType) -> Padding:
    """Lay parts out from left to right."""
    table = Table.grid(padding=(0, 4))
    table.add_row(*parts)
    return Padding(table, (0, 2))


def shade_matrix(title: str, matrix: Tensor) -> str:
    """Draw a matrix as blocks, darker for larger values in [0, 1]."""
    lines = [title]
    for number, row in enumerate(matrix.tolist(), start=1):
        blocks = "".join(SHADES[round(min(max(value, 0), 1) * (len(SHADES) - 1))] * 2 for value in row)
        lines.append(f"{number} {blocks}")
    return "\n".join(lines)


def format_values(values: Tensor) -> str:
    """Write a vector with as few digits as it needs, at most two."""
    return "(" + ", ".join(f"{value:.2f}".rstrip("0").rstrip(".") for value in values.tolist()) + ")"
