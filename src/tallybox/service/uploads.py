"""The photos of a request: one as the body, or several in the fields of a form (multipart/form-data)."""

from __future__ import annotations

from dataclasses import replace
from email.message import Message
from email.utils import collapse_rfc2231_value
from io import BytesIO
from typing import NamedTuple

from starlette.requests import Request

from tallybox.detections.container import Detections
from tallybox.estimator.estimator import Categories, CountEstimator
from tallybox.photos.detector import Detector
from tallybox.photos.images import Photo
from tallybox.service.count_requests import uploaded_photo
from tallybox.service.limits import Limits, Refused

FORM = "multipart/form-data"
# Added to what FastAPI describes of the routes that take photos.
FORM_DESCRIPTION = {
    "requestBody": {
        "content": {
            FORM: {
                "schema": {
                    "type": "object",
                    "properties": {
                        "photo": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        "category": {"type": "array", "items": {"type": "string"}},
                    },
                }
            }
        }
    }
}


class Uploads(NamedTuple):
    """What a request sends: files with their names, and the categories that its form names."""

    files: list[tuple[str | None, bytes]]
    categories: list[str]


async def read_uploads(request: Request, limits: Limits) -> Uploads:
    """Return the files of a request that sends an image or a form."""
    header, body = request.headers.get("content-type", ""), await request.body()
    if not header.strip().lower().startswith(FORM):
        return Uploads([(None, body)], [])
    uploads = parse_form(header, body)
    if not 1 <= len(uploads.files) <= limits.photos:
        raise Refused(422, f"a form must have 1 to {limits.photos} files, but got {len(uploads.files)}")
    return uploads


def parse_form(content_type: str, body: bytes) -> Uploads:
    r"""Split a form that is whole in memory into its files and its fields ``category``.

    >>> part = b'--x\r\nContent-Disposition: form-data; name="photo"; filename="a.jpg"\r\n\r\n\xff\xd8\r\n--x--\r\n'
    >>> parse_form("multipart/form-data; boundary=x", part)
    Uploads(files=[('a.jpg', b'\xff\xd8')], categories=[])
    """
    boundary = _header(content_type).get_param("boundary")
    opening = f"--{boundary}".encode("latin-1", "replace")
    if not isinstance(boundary, str) or not boundary or opening not in body:
        raise Refused(422, "a form must be multipart/form-data with its boundary, but it is not")
    uploads = Uploads([], [])
    # The line break before a boundary belongs to the boundary; the last one is followed by "--".
    *parts, end = (b"\r\n" + body).split(b"\r\n" + opening)[1:]
    if not end.startswith(b"--"):
        raise Refused(422, "a form must arrive whole, but its last boundary is missing")
    for part in parts:
        head, is_whole, content = part.partition(b"\r\n\r\n")
        lines = head.decode("utf-8", "replace").split("\r\n")
        disposition = next((line for line in lines if line.lower().startswith("content-disposition:")), "")
        fields = _header(disposition.partition(":")[2])
        name, file = fields.get_param("name"), fields.get_param("filename")
        if is_whole and file is not None:
            uploads.files.append((collapse_rfc2231_value(file), content))
        elif is_whole and name == "category":
            uploads.categories.append(content.decode("utf-8", "replace"))
        else:
            raise Refused(422, "the fields of a form must be files, or texts named category, but got another")
    return uploads


def outlined_photo(photo: Photo, detections: Detections, estimator: CountEstimator, categories: Categories) -> bytes:
    """Return a JPEG of a photo with its objects outlined and, below it, the counts in words."""
    from tallybox.photos.outlines import QUALITY, draw_counts

    explanations = estimator.explain(detections, categories)
    names = {estimator.category_name(key): one for key, one in explanations.items()}
    encoded = BytesIO()
    draw_counts(photo, detections, names).save(encoded, format="JPEG", quality=QUALITY)
    return encoded.getvalue()


def detected_photos(uploads: Uploads, detector: Detector, limits: Limits) -> list[tuple[Photo, Detections]]:
    """Decode the files and find what is in them."""
    found = []
    for name, content in uploads.files:
        try:
            photo = uploaded_photo(content, limits)
        except Refused as refused:
            raise Refused(refused.status, refused.message.replace("the body", name or "the body")) from None
        photo = replace(photo, name=name)
        found.append((photo, detector.detect([photo])[0]))
    return found


def _header(value: str) -> Message:
    message = Message()
    message["content-disposition"] = message["content-type"] = value
    return message
