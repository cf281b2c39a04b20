"""A photo in a request: its size is checked before it is decoded."""

from __future__ import annotations

import tempfile
from io import BytesIO
from pathlib import Path

from tallybox.errors import InputError
from tallybox.photos.images import FORMATS, Photo, read_photo
from tallybox.service.limits import Limits, Refused


def uploaded_photo(content: bytes, limits: Limits) -> Photo:
    """Decode a photo within the limits; it has no name."""
    from PIL import Image

    Image.init()
    too_large = f"an image must have at most {limits.image_pixels:,} pixels, but got more; make it smaller first"
    try:
        with Image.open(BytesIO(content), formats=[name for name in FORMATS if name in Image.OPEN]) as image:
            width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Refused(413, too_large) from None
    except Exception:  # readers of damaged files raise whatever their parsing stumbles on
        raise Refused(422, "the body must be an image (JPEG, PNG, WebP, TIFF, GIF, BMP ...), but it is none") from None
    if width * height > limits.image_pixels:
        raise Refused(413, too_large)
    with tempfile.NamedTemporaryFile(prefix="tallybox-") as file:
        file.write(content)
        file.flush()
        try:
            photo = read_photo(Path(file.name))
        except InputError as error:
            raise Refused(422, str(error).replace(file.name, "the image")) from None
    return Photo(photo.image, photo.size_wh, None)
