"""Draw what was counted on a photo: each object in its own colour, merged duplicates as thinner lines of it."""

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw, ImageFont

from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.explanation import CountExplanation, merged_into
from tallybox.files import atomic_writing
from tallybox.photos.images import MADE_BY, Photo, is_outlined_copy

# Okabe and Ito's palette, which people with any common colour vision can distinguish; light and dark in turn.
COLOURS = ("#E69F00", "#0072B2", "#F0E442", "#D55E00", "#56B4E9", "#009E73", "#CC79A7")
LEFTOVER = (255, 255, 255, 70)
DUPLICATE_OPACITY = 150
SHADE = (0, 0, 0, 120)  # under every line, so that it shows on a bright photo too
MAX_SIDE = 2400  # pixels of a picture; larger photos are drawn smaller
MIN_WIDTH = 240  # of the counts below a tiny photo
QUALITY = 92

Corners = tuple[float, float, float, float]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


class Outline(NamedTuple):
    """One box to draw; ``number`` counts the objects of its category from 1, 0 for a leftover."""

    corners: Corners
    name: str
    number: int
    is_counted: bool
    colour: str


def outlines_of(detections: Detections, explanations: Mapping[str, CountExplanation]) -> list[Outline]:
    """Return what to draw for the categories, by name, that were counted at least once: leftovers first."""
    outlines: list[Outline] = []
    drawn = 0
    for name, explanation in explanations.items():
        if explanation.prediction.count == 0:
            continue
        merged = merged_into(explanation).tolist()
        counted = (index for index, into in enumerate(merged) if into == index)
        numbers = {index: number for number, index in enumerate(counted, start=1)}
        for index, (box, into) in enumerate(zip(explanation.indices.tolist(), merged, strict=True)):
            number = numbers.get(into, 0)
            colour = COLOURS[(drawn + number - 1) % len(COLOURS)]
            x1, y1, x2, y2 = detections.boxes[box].tolist()
            outlines.append(Outline((x1, y1, x2, y2), name, number, into == index, colour))
        drawn += len(numbers)
    return sorted(outlines, key=lambda outline: (outline.is_counted, outline.number > 0))


def draw_counts(photo: Photo, detections: Detections, explanations: Mapping[str, CountExplanation]) -> Image.Image:
    """Return the photo with its outlines and, below it, the counts in words."""
    picture = photo.image.copy()
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    scale = np.array(picture.size) / np.array(photo.size_wh)
    layer = Image.new("RGBA", picture.size)
    pen = ImageDraw.Draw(layer)
    width = max(3, round(max(picture.size) / 220))
    outlines = [_on_picture(outline, scale) for outline in outlines_of(detections, explanations)]
    for outline in outlines:
        if outline.is_counted:
            shade = width // 3 + 1
            x1, y1, x2, y2 = outline.corners
            pen.rectangle((x1 - shade, y1 - shade, x2 + shade, y2 + shade), outline=SHADE, width=width + 2 * shade)
            pen.rectangle(outline.corners, outline=outline.colour, width=width)
        else:
            colour = (*ImageColor.getrgb(outline.colour), DUPLICATE_OPACITY) if outline.number else LEFTOVER
            pen.rectangle(outline.corners, outline=colour, width=max(1, width // 3))
    font = ImageFont.load_default(max(12, round(max(picture.size) / 45)))
    taken: list[Corners] = []
    for outline in outlines:
        if outline.is_counted:
            _label(pen, outline, font, taken, picture.size)
    picture = Image.alpha_composite(picture.convert("RGBA"), layer).convert("RGB")
    return _with_caption(picture, caption(explanations), legend(outlines), width, font)


def legend(outlines: Sequence[Outline]) -> list[tuple[str, str]]:
    """Return what the lines of each kind that is drawn mean, the thickest first.

    >>> legend([Outline((0, 0, 9, 9), "dog", 1, True, COLOURS[0])])
    [('counted', '#E69F00')]
    """
    kinds = {
        "counted": [outline for outline in outlines if outline.is_counted],
        "merged with a counted one": [outline for outline in outlines if outline.number and not outline.is_counted],
        "not counted": [outline for outline in outlines if not outline.number],
    }
    return [(meaning, drawn[-1].colour) for meaning, drawn in kinds.items() if drawn]


def caption(explanations: Mapping[str, CountExplanation]) -> list[str]:
    """Return what was counted in words, with the interval of each.

    >>> caption({})
    ['nothing counted']
    """
    predictions = ((name, explanation.prediction) for name, explanation in explanations.items())
    return [f"{name}: {p} ({p.low} to {p.high})" for name, p in predictions if p.count > 0] or ["nothing counted"]


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a JPEG atomically; a file that is there is replaced only if this function wrote it."""
    if (path.exists() or path.is_symlink()) and not is_outlined_copy(path):
        raise InputError(
            f"{path} must be a picture that tallybox drew, or not be there, but it is another file, which is kept; "
            "name another folder"
        )
    encoded = BytesIO()
    picture.save(encoded, format="JPEG", quality=QUALITY, comment=MADE_BY)
    with atomic_writing(path) as file:
        file.write(encoded.getbuffer())


def _on_picture(outline: Outline, scale: NDArray[np.float64]) -> Outline:
    x1, y1, x2, y2 = (np.array(outline.corners) * np.tile(scale, 2)).tolist()
    return outline._replace(corners=(x1, y1, max(x2 - 1, x1), max(y2 - 1, y1)))


def _label(
    pen: ImageDraw.ImageDraw, outline: Outline, font: Font, taken: list[Corners], size_wh: tuple[int, int]
) -> None:
    """Write the object's name and number where no label is yet, and add the label's corners to ``taken``."""
    text = f"{outline.name} {outline.number}"
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    margin = round((bottom - top) * 0.35)
    wide, high = right - left + 2 * margin, bottom - top + 2 * margin
    x, y, _, _ = outline.corners
    label = next(_free(outline.corners, wide, high, taken, size_wh), (x, y, x + wide, y + high))
    taken.append(label)
    pen.rectangle(label, fill=outline.colour)
    red, green, blue = ImageColor.getrgb(outline.colour)[:3]
    ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 130 else "white"
    pen.text((label[0] + margin - left, label[1] + margin - top), text, fill=ink, font=font)


def _free(
    corners: Corners, wide: float, high: float, taken: list[Corners], size_wh: tuple[int, int]
) -> Iterator[Corners]:
    """Yield free positions for a label: above the box, where it hides no face, then inside, from its top or bottom."""
    x1, y1, x2, y2 = corners
    for top, left in product((y1 - high, y1, y2 - high, y1 + high, y1 + 2 * high), (x1, x2 - wide)):
        right, bottom = left + wide, top + high
        inside = left >= 0 and top >= 0 and right <= size_wh[0] and bottom <= size_wh[1]
        if inside and all(left >= t[2] or right <= t[0] or top >= t[3] or bottom <= t[1] for t in taken):
            yield left, top, right, bottom


def _with_caption(
    picture: Image.Image, parts: list[str], kinds: list[tuple[str, str]], stroke: int, font: Font
) -> Image.Image:
    """Add the counts below, in as many lines as they need, and what thick and thin lines mean."""
    pen = ImageDraw.Draw(picture)
    _, top, _, bottom = pen.textbbox((0, 0), "Ag", font=font)
    line, margin = round((bottom - top) * 1.5), round(bottom - top)
    width = max(picture.width, MIN_WIDTH)
    lines: list[str] = []
    for part in parts:
        joined = f"{lines[-1]}   {part}" if lines else part
        if lines and pen.textlength(joined, font=font) <= width - 2 * margin:
            lines[-1] = joined
        else:
            lines.append(part)
    whole = Image.new("RGB", (width, picture.height + 2 * margin + line * (len(lines) + bool(kinds))), "white")
    whole.paste(picture, (0, 0))
    pen = ImageDraw.Draw(whole)
    for number, text in enumerate(lines):
        pen.text((margin, picture.height + margin + number * line), text, fill="black", font=font)
    x, y = float(margin), picture.height + margin + len(lines) * line
    for meaning, colour in kinds:
        thickness = stroke if meaning == "counted" else max(1, stroke // 3)
        box = (x, y + 0.2 * margin, x + 1.6 * margin, y + 1.2 * margin)
        pen.rectangle(box, outline="#B0B0B0" if meaning == "not counted" else colour, width=thickness)
        pen.text((x + 2 * margin, y), meaning, fill="#444444", font=font)
        x += 3 * margin + pen.textlength(meaning, font=font)
    return whole
