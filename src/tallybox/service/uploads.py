"""Photos of a request: one as the body, or several in a form (multipart/form-data)."""

from dataclasses import replace
from typing import Annotated, NamedTuple

from fastapi import Query, Request
from starlette.exceptions import HTTPException

from tallybox.errors import InputError
from tallybox.photos.images import Photo, PhotoTooLargeError, read_photo
from tallybox.service.guard import PHOTO_TYPES, content_type

FORM = "multipart/form-data"
BINARY = {"type": "string", "format": "binary"}
FIELDS = {"photo": {"type": "array", "items": BINARY}, "category": {"type": "array", "items": {"type": "string"}}}
# FastAPI describes only bodies that it reads itself.
BODY_DESCRIPTION = {
    "requestBody": {
        "required": True,
        "content": {"image/*": {"schema": BINARY}, FORM: {"schema": {"type": "object", "properties": FIELDS}}},
    }
}
MAX_FIELDS = 100  # of a form, besides its files


class Uploads(NamedTuple):
    """The files of a request with their names, and the categories that its address and its form name."""

    files: list[tuple[str | None, bytes]]
    categories: list[str]


async def read_uploads(
    request: Request,
    category: Annotated[list[str], Query(description="Count these only.", max_length=100)] = [],  # noqa: B006 - FastAPI copies it
) -> Uploads:
    """Return the files and the categories of a request whose body is a photo or a form."""
    kind = content_type(request.scope)
    if not kind.startswith(PHOTO_TYPES):
        raise HTTPException(415, "Content-Type must be that of an image, or multipart/form-data.")
    if kind != FORM:
        return Uploads([(None, await request.body())], category)
    uploads = Uploads([], list(category))
    async with request.form(max_files=MAX_FIELDS, max_fields=MAX_FIELDS) as form:
        for name, value in form.multi_items():
            if not isinstance(value, str):
                uploads.files.append((value.filename, await value.read()))
            elif name == "category":
                uploads.categories.append(value)
            else:
                raise HTTPException(422, "The fields of a form must be files, or texts named category.")
    return uploads


def decode_photo(name: str | None, content: bytes, max_pixels: int) -> Photo:
    """Decode an uploaded photo; its size is checked before its pixels are read."""
    try:
        return replace(read_photo(content, max_pixels=max_pixels), name=name)
    except PhotoTooLargeError as error:
        raise HTTPException(413, str(error)) from None
    except InputError as error:
        raise HTTPException(422, f"{name or 'Photo'}: {error}") from None
