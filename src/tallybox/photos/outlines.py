"""Draw counted objects on a photo: each in its own colour, duplicates as thinner lines of the same colour."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw, ImageFont

from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.explanation import CountExplanation, merged_into
from tallybox.estimator.prediction import CountPrediction, interval_text
from tallybox.files import atomic_writing
from tallybox.photos.images import Photo

# Okabe and Ito's palette, which people with any common colour vision can distinguish; light and dark in turn.
COLOURS = ("#E69F00", "#0072B2", "#F0E442", "#D55E00", "#56B4E9", "#009E73", "#CC79A7")
LEFTOVER = (255, 255, 255, 70)
DUPLICATE_OPACITY = 150
SHADE = (0, 0, 0, 120)  # under every line, so that it shows on a bright photo too
MAX_SIDE = 2400  # pixels of a picture; larger photos are drawn smaller
MIN_WIDTH = 240  # of the counts below a tiny photo
QUALITY = 92
MADE_BY = b"drawn by tallybox"  # the JPEG comment of these pictures

Corners = tuple[float, float, float, float]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


class Outline(NamedTuple):
    """One box to draw; ``number`` counts the objects of its category from 1, 0 for a leftover."""

    corners: Corners
    name: str
    number: int
    is_counted: bool
    colour: str


def outlines_of(
    detections: Detections, explanations: Mapping[str, CountExplanation], before: Sequence[Outline] = ()
) -> list[Outline]:
    """Return the outlines of categories, by name, that count at least 1; numbers go on from outlines ``before``."""
    outlines: list[Outline] = []
    drawn = sum(outline.is_counted for outline in before)
    for name, explanation in explanations.items():
        if explanation.prediction.count == 0:
            continue
        first = 1 + max((outline.number for outline in before if outline.name == name), default=0)
        merged = merged_into(explanation).tolist()
        counted = (index for index, into in enumerate(merged) if into == index)
        numbers = {index: number for number, index in enumerate(counted, start=first)}
        for index, (box, into) in enumerate(zip(explanation.indices.tolist(), merged, strict=True)):
            number = numbers.get(into, 0)
            colour = COLOURS[(drawn + number - first) % len(COLOURS)]
            x1, y1, x2, y2 = detections.boxes[box].tolist()
            outlines.append(Outline((x1, y1, x2, y2), name, number, into == index, colour))
        drawn += len(numbers)
    return outlines


def draw_outlines(photo: Photo, outlines: Iterable[Outline], predictions: Mapping[str, CountPrediction]) -> Image.Image:
    """Return the photo with outlines and, below it, the counts in words."""
    picture = photo.image.copy()
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    scale = np.tile(np.array(picture.size) / np.array(photo.size_wh), 2)
    layer = Image.new("RGBA", picture.size)
    pen = ImageDraw.Draw(layer)
    width = max(3, round(max(picture.size) / 220))
    font = ImageFont.load_default(max(12, round(max(picture.size) / 45)))
    ordered = sorted(outlines, key=lambda outline: (outline.is_counted, outline.number > 0))  # counted ones on top
    scaled = [outline._replace(corners=_on_picture(outline.corners, scale)) for outline in ordered]
    for outline in scaled:
        if outline.is_counted:
            shade = width // 3 + 1
            x1, y1, x2, y2 = outline.corners
            pen.rectangle((x1 - shade, y1 - shade, x2 + shade, y2 + shade), outline=SHADE, width=width + 2 * shade)
            pen.rectangle(outline.corners, outline=outline.colour, width=width)
        else:
            colour = (*ImageColor.getrgb(outline.colour), DUPLICATE_OPACITY) if outline.number else LEFTOVER
            pen.rectangle(outline.corners, outline=colour, width=max(1, width // 3))
    for outline in scaled:
        if outline.is_counted:
            _label(pen, outline, font)
    picture = Image.alpha_composite(picture.convert("RGBA"), layer).convert("RGB")
    caption = [f"{name}: {p} (90 %: {interval_text(p)})" for name, p in predictions.items() if p.count > 0]
    return _with_caption(picture, caption or ["nothing counted"], font)


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a JPEG atomically; an existing file is replaced only if tallybox drew it."""
    if path.exists() or path.is_symlink():
        own = None
        with suppress(OSError, SyntaxError, ValueError), Image.open(path, formats=["JPEG"]) as picture_before:
            own = picture_before.info.get("comment")
        if own != MADE_BY or path.is_symlink():
            raise InputError(f"{path} exists and was not drawn by tallybox; choose another folder")
    encoded = BytesIO()
    picture.save(encoded, format="JPEG", quality=QUALITY, comment=MADE_BY)
    with atomic_writing(path) as file:
        file.write(encoded.getbuffer())


def _on_picture(corners: Corners, scale: NDArray[np.float64]) -> Corners:
    x1, y1, x2, y2 = (np.array(corners) * scale).tolist()
    return x1, y1, max(x2 - 1, x1), max(y2 - 1, y1)


def _label(pen: ImageDraw.ImageDraw, outline: Outline, font: Font) -> None:
    """Write the object's name and number above its box, or inside at the top edge of the photo."""
    text = f"{outline.name} {outline.number}"
    left, top, right, bottom = pen.textbbox((0, 0), text, font=font)
    margin = round((bottom - top) * 0.35)
    x, y = outline.corners[:2]
    y = y - (bottom - top + 2 * margin) if y > bottom - top + 2 * margin else y
    pen.rectangle((x, y, x + right - left + 2 * margin, y + bottom - top + 2 * margin), fill=outline.colour)
    red, green, blue = ImageColor.getrgb(outline.colour)[:3]
    ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 130 else "white"
    pen.text((x + margin - left, y + margin - top), text, fill=ink, font=font)


def _with_caption(picture: Image.Image, parts: Sequence[str], font: Font) -> Image.Image:
    """Add the counts below, in as many lines as they need."""
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
    framed = Image.new("RGB", (width, picture.height + 2 * margin + line * len(lines)), "white")
    framed.paste(picture, (0, 0))
    pen = ImageDraw.Draw(framed)
    for number, text in enumerate(lines):
        pen.text((margin, picture.height + margin + number * line), text, fill="black", font=font)
    return framed
