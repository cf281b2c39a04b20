"""The photos of a request: one as the body, or several in the fields of a form (multipart/form-data)."""

import tempfile
from dataclasses import replace
from email.message import Message
from email.utils import collapse_rfc2231_value
from io import BytesIO
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import Body, Query, Request
from starlette.exceptions import HTTPException

from tallybox.detections.detections import Detections
from tallybox.errors import InputError
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.photos.detector import Detector
from tallybox.photos.images import FORMATS, Photo, read_photo
from tallybox.service.guard import content_type
from tallybox.service.limits import Limits

FORM = "multipart/form-data"
TEXT, BINARY = {"type": "string"}, {"type": "string", "format": "binary"}
FIELDS = {"photo": {"type": "array", "items": BINARY}, "category": {"type": "array", "items": TEXT}}
# Added to what FastAPI describes of the routes that take photos.
FORM_DESCRIPTION = {"requestBody": {"content": {FORM: {"schema": {"type": "object", "properties": FIELDS}}}}}


class Uploads(NamedTuple):
    """The files of a request with their names, and the categories that its address and its form name."""

    files: list[tuple[str | None, bytes]]
    categories: list[str]


async def read_uploads(
    request: Request,
    photo: Annotated[bytes, Body(media_type="image/*", description="The photo, as the file is.")],
    category: Annotated[list[str], Query(description="Answer for these.", max_length=100)] = [],  # noqa: B006 - FastAPI copies it
) -> Uploads:
    """Return the files and the categories of a request whose body is an image or a form."""
    if content_type(request.scope) != FORM:
        return Uploads([(None, photo)], category)
    uploads = parse_form(request.headers["content-type"], photo)
    return uploads._replace(categories=category + uploads.categories)


def parse_form(header: str, body: bytes) -> Uploads:
    r"""Split a form that is whole in memory into its files and its fields ``category``.

    >>> part = b'--x\r\nContent-Disposition: form-data; name="photo"; filename="a.jpg"\r\n\r\n\xff\xd8\r\n--x--\r\n'
    >>> parse_form("multipart/form-data; boundary=x", part)
    Uploads(files=[('a.jpg', b'\xff\xd8')], categories=[])
    """
    boundary = _header(header).get_param("boundary")
    opening = f"--{boundary}".encode("latin-1", "replace")
    if not isinstance(boundary, str) or not boundary or opening not in body:
        raise HTTPException(422, "a form must be multipart/form-data with its boundary, but it is not")
    uploads = Uploads([], [])
    # The line break before a boundary belongs to the boundary; the last one is followed by "--".
    *parts, end = (b"\r\n" + body).split(b"\r\n" + opening)[1:]
    if not end.startswith(b"--"):
        raise HTTPException(422, "a form must arrive whole, but its last boundary is missing")
    for part in parts:
        head, is_whole, content = part.partition(b"\r\n\r\n")
        lines = head.decode("utf-8", "replace").split("\r\n")
        disposition = next((line for line in lines if line.lower().startswith("content-disposition:")), "")
        fields = _header(disposition.partition(":")[2])
        name, filename = fields.get_param("name"), fields.get_param("filename")
        if is_whole and filename is not None:
            uploads.files.append((collapse_rfc2231_value(filename), content))
        elif is_whole and name == "category":
            uploads.categories.append(content.decode("utf-8", "replace"))
        else:
            raise HTTPException(422, "the fields of a form must be files, or texts named category, but got another")
    return uploads


def detected_photos(uploads: Uploads, detector: Detector, limits: Limits) -> list[tuple[Photo, Detections]]:
    """Decode the files and detect objects in them."""
    if not 1 <= len(uploads.files) <= limits.photos:
        raise HTTPException(422, f"a form must have 1 to {limits.photos} files, but got {len(uploads.files)}")
    photos = []
    for name, content in uploads.files:
        photo = _decoded(name, content, limits)
        photos.append((photo, detector.detect([photo])[0]))
    return photos


def _decoded(name: str | None, content: bytes, limits: Limits) -> Photo:
    """Decode a photo after checking its size."""
    from PIL import Image

    Image.init()
    too_large = f"an image must have at most {limits.image_pixels:,} pixels, but got more; make it smaller first"
    try:
        with Image.open(BytesIO(content), formats=[name for name in FORMATS if name in Image.OPEN]) as image:
            width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise HTTPException(413, too_large) from None
    except Exception:  # readers of damaged files raise whatever their parsing stumbles on
        kinds = "JPEG, PNG, WebP, TIFF, GIF, BMP ..."
        raise HTTPException(422, f"{name or 'the body'} must be an image ({kinds}), but it is none") from None
    if width * height > limits.image_pixels:
        raise HTTPException(413, too_large)
    with tempfile.NamedTemporaryFile(prefix="tallybox-") as file:
        file.write(content)
        file.flush()
        try:
            return replace(read_photo(Path(file.name)), name=name)
        except InputError as error:
            raise HTTPException(422, str(error).replace(file.name, "the image")) from None


def outlined_photo(photo: Photo, detections: Detections, estimator: CountEstimator, categories: Categories) -> bytes:
    """Return a JPEG of a photo with its objects outlined and, below it, the counts in words."""
    from tallybox.photos.outlines import QUALITY, draw_counts

    explanations = estimator.explain(detections, categories)
    by_name = {estimator.category_name(key): explanation for key, explanation in explanations.items()}
    encoded = BytesIO()
    draw_counts(photo, detections, by_name).save(encoded, format="JPEG", quality=QUALITY)
    return encoded.getvalue()


def _header(value: str) -> Message:
    message = Message()
    message["content-disposition"] = message["content-type"] = value
    return message
