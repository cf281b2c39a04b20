"""Draw counted objects on a photo: colour by category, number by object, solid if clear and dashed if doubtful."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from io import BytesIO
from itertools import groupby
from math import hypot
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from tallybox.detections.categories import named
from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.explanation import CLEAR_PRESENCE, CountExplanation, merged_into
from tallybox.estimator.prediction import CountPrediction, interval_text, most_first
from tallybox.files import atomic_writing
from tallybox.photos.images import Photo

# Okabe and Ito's palette, which people with any common colour vision can distinguish; as in explain/assets/colours.js.
COLOURS = ("#e69f00", "#56b4e9", "#cc79a7", "#009e73", "#d55e00", "#0072b2", "#f0e442")
LEFTOVER = "#cfd4d9"  # boxes that are not counted
SHADE = (0, 0, 0, 120)  # around every line, so that it shows on a bright photo too
MAX_SIDE = 2400  # pixels of a picture; larger photos are drawn smaller
MIN_WIDTH = 240  # of the counts below a tiny photo
QUALITY = 92
MADE_BY = b"drawn by tallybox"  # the JPEG comment of these pictures
FONTS = ("DejaVuSans.ttf", "Arial.ttf", "LiberationSans-Regular.ttf", "Helvetica.ttc")  # the first that is installed
SMOOTH = 4  # discs are drawn so many times larger, then reduced


class Outline(NamedTuple):
    """One box to draw; ``number`` counts the objects of its category from 1, 0 for a leftover."""

    corners: tuple[float, float, float, float]
    name: str
    number: int
    is_counted: bool
    is_clear: bool  # a counted box with a presence of at least 0.5


def outlines_of(
    detections: Detections, explanations: Mapping[str, CountExplanation], before: Sequence[Outline] = ()
) -> list[Outline]:
    """Return the outlines of categories, by name, that count at least 1; numbers go on from outlines ``before``."""
    outlines: list[Outline] = []
    for name, explanation in explanations.items():
        if explanation.prediction.count == 0:
            continue
        first = 1 + max((outline.number for outline in before if outline.name == name), default=0)
        merged = merged_into(explanation).tolist()
        counted = (index for index, into in enumerate(merged) if into == index)
        numbers = {index: number for number, index in enumerate(counted, start=first)}
        for index, (box, into) in enumerate(zip(explanation.indices.tolist(), merged, strict=True)):
            x1, y1, x2, y2 = detections.boxes[box].tolist()
            is_clear = into == index and explanation.presence[index] >= CLEAR_PRESENCE
            outlines.append(Outline((x1, y1, x2, y2), name, numbers.get(into, 0), into == index, is_clear))
    return outlines


def category_colours(
    predictions: Mapping[str, CountPrediction], colours: dict[str, str] | None = None
) -> dict[str, str]:
    """Return the colours of counted categories, the one with the most objects first.

    Photos that belong together share the dict ``colours``, so that a category has one colour in all of them.
    """
    known = {} if colours is None else colours
    names = [name for name, p in most_first(predictions) if p.count > 0]
    return {name: known.setdefault(name, COLOURS[len(known) % len(COLOURS)]) for name in names}


def draw_outlines(
    photo: Photo,
    outlines: Iterable[Outline],
    predictions: Mapping[str, CountPrediction],
    *,
    colours: dict[str, str] | None = None,
    all_boxes: bool = False,
    with_caption: bool = True,
) -> Image.Image:
    """Return the photo with the outlines of counted boxes, or of ``all_boxes``, and, below it, the counts in words."""
    picture = photo.image.copy()
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    scale = np.tile(np.array(picture.size) / np.array(photo.size_wh), 2)
    layer, width = Image.new("RGBA", picture.size), max(2, round(max(picture.size) / 200))
    seam, colours = max(1, width // 3), category_colours(predictions, colours)
    counted = []
    for outline in outlines:
        x1, y1, x2, y2 = (np.array(outline.corners) * scale).tolist()
        outline = outline._replace(corners=(x1, y1, max(x2 - 1, x1), max(y2 - 1, y1)))
        if outline.is_counted:
            counted.append(outline)
        elif all_boxes:
            colour = colours.get(outline.name, LEFTOVER) if outline.number else LEFTOVER
            ImageDraw.Draw(picture).rectangle(outline.corners, outline=colour, width=seam)
    counted.sort(key=lambda outline: outline.is_clear)
    for is_clear, group in groupby(counted, key=lambda outline: outline.is_clear):  # clear ones on top
        pen = ImageDraw.Draw(layer)
        for outline in group:
            x1, y1, x2, y2 = outline.corners
            pen.rectangle((x1 - seam, y1 - seam, x2 + seam, y2 + seam), outline=SHADE, width=width + 2 * seam)
            pen.rectangle(outline.corners, outline=colours.get(outline.name, LEFTOVER), width=width)
        if not is_clear:  # dashed
            diagonal = np.arange(layer.width) + np.arange(layer.height)[:, None]
            is_drawn = diagonal % (7 * width) < 4 * width
            layer.putalpha(Image.fromarray(np.asarray(layer.getchannel("A")) * is_drawn))
    radius = max(10, round(max(picture.size) / 58))
    for outline, (x, y) in number_places(counted[::-1], radius):
        ground = colours.get(outline.name, LEFTOVER) if outline.is_clear else "#ffffff"
        disc = _disc(str(outline.number), ground, radius)
        layer.alpha_composite(disc, (max(0, round(x) - radius), max(0, round(y) - radius)))
    picture = Image.alpha_composite(picture.convert("RGBA"), layer).convert("RGB")
    if not with_caption:
        return picture
    clear = sum(outline.is_clear for outline in counted)
    texts = (f"{named(str(p), name)} ({interval_text(p)})" for name, p in most_first(predictions) if p.count > 0)
    parts = list(zip(texts, colours.values(), strict=True))
    key = f"{clear} clear" + (f", {len(counted) - clear} doubtful (dashed)" if clear < len(counted) else "")
    return _with_caption(picture, parts, key)


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a JPEG atomically; an existing file is replaced only if tallybox drew it."""
    if path.exists() or path.is_symlink():
        own = None
        with suppress(OSError, SyntaxError, ValueError), Image.open(path, formats=["JPEG"]) as picture_before:
            own = picture_before.info.get("comment")
        if own != MADE_BY or path.is_symlink():
            raise InputError(f"{path} exists and was not drawn by tallybox; choose another folder")
    encoded = BytesIO()  # written to a file directly, the last part may be cut short on a full disk without an error
    picture.save(encoded, format="JPEG", quality=QUALITY, comment=MADE_BY)
    with atomic_writing(path) as file:
        file.write(encoded.getbuffer())


def number_places(outlines: Sequence[Outline], radius: float) -> Iterator[tuple[Outline, tuple[float, float]]]:
    """Yield where the number of each box fits: in a corner of it, and on no other number."""
    taken: list[tuple[float, float]] = []
    for outline in outlines:
        x1, y1, x2, y2 = outline.corners
        if min(x2 - x1, y2 - y1) < 2 * radius:
            continue
        for x, y in ((x, y) for y in (y1 + radius, y2 - radius) for x in (x1 + radius, x2 - radius)):
            if all(hypot(x - other_x, y - other_y) >= 2 * radius for other_x, other_y in taken):
                taken.append((x, y))
                yield outline, (x, y)
                break


def _disc(text: str, ground: str, radius: int) -> Image.Image:
    """Return a number on a disc."""
    side = 2 * radius + 1
    disc = Image.new("RGBA", (SMOOTH * side, SMOOTH * side))
    pen = ImageDraw.Draw(disc)
    pen.ellipse((0, 0, SMOOTH * side - 1, SMOOTH * side - 1), fill=ground, outline="#111111", width=SMOOTH)
    font = _font(round(SMOOTH * radius * (1.1 if len(text) < 3 else 0.8)))
    middle = SMOOTH * side / 2
    red, green, blue = ImageColor.getrgb(ground)[:3]
    ink = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 100 else "white"
    pen.text((middle, middle), text, fill=ink, font=font, anchor="mm", stroke_width=1, stroke_fill=ink)
    return disc.resize((side, side), Image.Resampling.LANCZOS)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return a font of the machine, or Pillow's own, which has the letters of English only."""
    for name in FONTS:
        with suppress(OSError):
            return ImageFont.truetype(name, size)
    return ImageFont.load_default(size)


def _with_caption(picture: Image.Image, parts: Sequence[tuple[str, str]], key: str) -> Image.Image:
    """Add the counts below, each with the colour of its category, in as many lines as they need, and the key."""
    size = max(12, round(max(picture.size) / 42))
    font, small = _font(size), _font(round(0.85 * size))
    line, margin, swatch = round(1.5 * size), round(0.8 * size), round(0.7 * size)
    width = max(picture.width, MIN_WIDTH)
    framed = Image.new("RGB", (width, picture.height + line * (len(parts) + 2)), "white")
    framed.paste(picture, (0, 0))
    pen = ImageDraw.Draw(framed)
    x, y = float(margin), picture.height + margin
    for text, colour in parts:
        if not isinstance(getattr(font, "path", None), str):  # Pillow's own
            text = text.replace("–", "-")
        length = 1.7 * swatch + font.getlength(text)
        if x > margin and x + size + length > width:
            x, y = margin, y + line
        if x > margin:
            pen.text((x - size, y), "·", fill="#626a73", font=font)
        pen.rectangle((x, y + 0.3 * size, x + swatch, y + 0.3 * size + swatch), fill=colour)
        pen.text((x + 1.7 * swatch, y), text, fill="black", font=font)
        x += length + 1.5 * size
    if parts:
        y += line
        pen.text((margin, y), key, fill="#626a73", font=small)
    else:
        pen.text((margin, y), "Nothing counted", fill="black", font=font)
    return framed.crop((0, 0, width, y + line + margin // 2))
