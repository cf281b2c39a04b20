"""The explorer page, the description page and their files, held in memory: no path is made from a request."""

from __future__ import annotations

from fastapi import FastAPI, Response

from tallybox.drawing.assets import read_assets
from tallybox.photos.shipped import sample_photos
from tallybox.service.limits import Refused

MEDIA_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def add_pages(api: FastAPI) -> None:
    """Serve the explorer at ``/``, the description at ``/docs``, and what they load below ``/assets``, ``/photos``."""
    assets = read_assets("tallybox.drawing", "tallybox.service")
    photos = {path.name: path.read_bytes() for path in sample_photos()}

    @api.get("/", include_in_schema=False)
    async def explorer() -> Response:
        return Response(assets["explorer.html"], media_type="text/html; charset=utf-8")

    @api.get("/docs", include_in_schema=False)
    async def description() -> Response:
        return Response(assets["docs.html"], media_type="text/html; charset=utf-8")

    @api.get("/assets/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        media_type = MEDIA_TYPES.get(name.rpartition(".")[2])
        if name not in assets or media_type is None:
            raise Refused(404, "there is no such file")
        return Response(assets[name], media_type=f"{media_type}; charset=utf-8", headers={"cache-control": "no-cache"})

    @api.get("/photos", include_in_schema=False)
    async def photo_names() -> list[str]:
        return list(photos)

    @api.get("/photos/{name}", include_in_schema=False)
    async def photo(name: str) -> Response:
        if name not in photos:
            raise Refused(404, "there is no such photo")
        return Response(photos[name], media_type="image/jpeg", headers={"cache-control": "no-cache"})
