"""Photos as a page carries them: small JPEGs inside data URLs."""

from __future__ import annotations

import base64
from io import BytesIO

from tallybox.photos.images import Photo

LONGEST_SIDE = 1280
QUALITY = 82


def photo_href(photo: Photo) -> str:
    """Return a photo as a data URL, no larger than a page needs; it is written anew, so nothing else travels along."""
    image = photo.image.copy()
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    file = BytesIO()
    image.save(file, "JPEG", quality=QUALITY, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
