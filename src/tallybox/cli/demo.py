"""`tallybox demo`: the paper's story in the terminal, then real photos; every number computed on the spot."""

from __future__ import annotations

from pathlib import Path

import click
import torch
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from torch import Tensor

from tallybox.cli.demo_photos import show_photos
from tallybox.counter.module import Counter
from tallybox.counter.trace import CountTrace
from tallybox.drawing.scenes import CatProposals, cats

SHADES = "·░▒▓█"  # 0 to 1; shades rather than colours, so that every terminal shows them


@click.command()
@click.option("--figure", type=click.Path(path_type=Path), help="Also draw the story as a picture (.svg or .png).")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("runs/demo"), help="For the counted photos."
)
def demo(figure: Path | None, out: Path) -> None:
    """Show how the component counts, then count in three real photos; no files needed."""
    console = Console(highlight=False)
    scene = cats()
    counter = Counter(max_objects=4)
    with torch.no_grad():
        tell_photo(console, scene)
        tell_count(console, counter.explain(torch.ones(4), scene.boxes))
        tell_other_question(console, counter, scene)
        tell_soft_attention(console, counter, scene)
    if figure is not None:
        from tallybox.figures.story import draw_story

        draw_story(figure)
        console.print(f"Picture written to {figure}\n")
    show_photos(console, out)


def tell_photo(console: Console, scene: CatProposals) -> None:
    """Draw the proposals as a detector gives them."""
    console.print("\n[bold]How many cats?[/bold]  A detector gives four proposals. One cat was found twice.\n")
    console.print(Padding(Text("\n".join(draw_boxes(scene))), (0, 2)))
    console.print("\nEvery proposal shows a cat, so each has the attention weight 1.\n")


def draw_boxes(scene: CatProposals) -> list[str]:
    """Draw boxes as text lines; proposals at the same place share a frame and a label."""
    width, height = scene.size_wh[0], scene.size_wh[1] // 2  # a character is about twice as high as wide
    canvas = [[" "] * width for _ in range(height)]
    labels: dict[tuple[int, ...], list[str]] = {}
    for number, (box, label) in enumerate(zip(scene.boxes.tolist(), scene.labels, strict=True), start=1):
        place = (int(box[0]), int(box[1]) // 2, int(box[2]), int(box[3]) // 2)
        labels.setdefault(place, []).append(f"{number} {label}")
    for (x1, y1, x2, y2), names in labels.items():
        for x in range(x1, x2):
            canvas[y1][x] = canvas[y2][x] = "─"
        for y in range(y1, y2):
            canvas[y][x1] = canvas[y][x2] = "│"
        for (x, y), corner in zip(((x1, y1), (x2, y1), (x1, y2), (x2, y2)), "┌┐└┘", strict=True):
            canvas[y][x] = corner
        for line, name in enumerate(names):
            for offset, letter in enumerate(name):
                canvas[y1 + 1 + line][x1 + 2 + offset] = letter
    return ["".join(row).rstrip() for row in canvas]


def tell_count(console: Console, trace: CountTrace) -> None:
    """Show the matrices and how the count comes out of them."""
    table = Table.grid(padding=(0, 4))
    for _ in range(4):
        table.add_column()
    table.add_row(
        shade_matrix("A = a aᵀ", trace.relevance),
        shade_matrix("D = 1 - IoU", trace.distance),
        shade_matrix("Ã = A ⊙ D", trace.deduplicated),
        shade_matrix("C", trace.count_matrix),
    )
    console.print(Padding(table, (0, 2)))
    edges = trace.count_matrix.sum().item()
    console.print("\n  [dim]0 [/dim]" + "".join(shade * 2 for shade in SHADES) + "[dim] 1[/dim]\n")
    console.print("A  joins proposals that are both relevant: 16 edges, √16 = 4, the plain sum.")
    console.print("D  is 0 where two boxes are the same, so Ã has no edges within a cat.")
    console.print(f"C  shares the edges of look-alikes, here scaled by s = {format_values(trace.scale)},")
    console.print("   and puts each cat's edge to itself back.\n")
    console.print(f"[bold]count = √(sum of C) = √{edges:.2f} = {trace.count.item():.2f}[/bold]", end="")
    console.print(f"     summing the weights would say {trace.attention.sum().item():.2f}")
    console.print(f"features for a classifier: {format_values(trace.features)}  (of 0, 1, 2, 3, 4)\n")


def tell_other_question(console: Console, counter: Counter, scene: CatProposals) -> None:
    """Ask about fewer of the cats: irrelevant proposals have weight 0 (the paper's figure 1)."""
    attention = torch.tensor([1.0, 1.0, 1.0, 0.0])
    count = counter.count(attention, scene.boxes).item()
    console.print(
        f"[bold]How many dark cats?[/bold]  The white one is irrelevant: weights {format_values(attention)}.\n"
        f"[bold]count = {count:.2f}[/bold]     summing the weights would say {attention.sum().item():.2f}\n"
    )


def tell_soft_attention(console: Console, counter: Counter, scene: CatProposals) -> None:
    """Show what normalised attention loses (paper, section "Problems with soft attention")."""
    cat_feature = torch.tensor([0.3, 0.9, 0.1])
    boxes = scene.boxes[[1, 2]]
    table = Table(title="What softmax attention would have lost", title_justify="left", box=None, padding=(0, 3, 0, 0))
    for column in ("photo", "softmax weights", "attended feature", "our count"):
        table.add_column(column)
    for number, photo in enumerate(("one cat", "that cat twice"), start=1):
        features = cat_feature.expand(number, 3)
        softmax = torch.zeros(number).softmax(0)
        attended = softmax @ features
        count = counter.count(torch.ones(number), boxes[:number]).item()
        table.add_row(photo, format_values(softmax), format_values(attended), f"{count:.2f}")
    console.print(table)
    console.print(
        "\nWeights that sum to 1 average two cats back into one: same feature, no count.\n"
        "The component counts from the weights before they are normalised.\n"
        "More: docs/method.md\n"
    )


def shade_matrix(title: str, matrix: Tensor) -> Text:
    """Draw a matrix as blocks, darker for larger values in [0, 1]."""
    lines = [title]
    for number, row in enumerate(matrix.tolist(), start=1):
        blocks = "".join(SHADES[round(min(max(value, 0), 1) * (len(SHADES) - 1))] * 2 for value in row)
        lines.append(f"{number} {blocks}")
    return Text("\n".join(lines))


def format_values(values: Tensor) -> str:
    """Write a vector with as few digits as it needs, at most two."""
    return "(" + ", ".join(f"{value:.2f}".rstrip("0").rstrip(".") for value in values.tolist()) + ")"
