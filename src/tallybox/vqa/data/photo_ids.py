"""One id for a photo, whatever form of it a file has: questions and features must agree on it."""

import re

COCO_NAME = re.compile(r"(?:.*/)?COCO_(?:train|val|test)\d{4}_(\d+)(?:\.jpg)?(?:\.npz)?")
VISUAL_GENOME_NAME = re.compile(r"(?:.*/)?VG_100K(?:_2)?/(\d+)(?:\.jpg)?(?:\.npz)?")
VISUAL_GENOME = "VG"  # its numbers are not COCO's
SUFFIX = re.compile(r"\.(?:jpe?g|png|webp|gif|bmp|tiff?)$", re.IGNORECASE)


def photo_id(value: int | str) -> str:
    """Return a photo's id as text: a number without leading zeros for COCO's names, ``VG/number`` for Visual Genome's.

    Other names stay as they are, without the suffix of a photo.

    >>> [photo_id(name) for name in (42, "000000000042.jpg", "val2014/COCO_val2014_000000000042.jpg")]
    ['42', '42', '42']
    >>> photo_id("VG_100K_2/2410408.jpg"), photo_id("kitchen/a.jpg")
    ('VG/2410408', 'kitchen/a')
    """
    text = str(value).strip()
    if match := COCO_NAME.fullmatch(text):
        return str(int(match[1]))
    if match := VISUAL_GENOME_NAME.fullmatch(text):
        return f"{VISUAL_GENOME}/{int(match[1])}"
    plain = SUFFIX.sub("", text.removesuffix(".npz"))
    return str(int(plain)) if plain.isascii() and plain.isdigit() else plain
