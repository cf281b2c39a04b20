"""The explorer page, the description page and their files, held in memory: no path is made from a request."""

from __future__ import annotations

from string import Template

from fastapi import FastAPI, Response

from tallybox.drawing.assets import read_assets
from tallybox.service.limits import Refused

# What each page loads and is called, and what it says where scripts do not run.
PAGES = {
    "/": {
        "name": "explorer",
        "title": "see it count",
        "without_scripts": "The explorer needs JavaScript. The service does not: see /docs.",
    },
    "/docs": {
        "name": "docs",
        "title": "the HTTP service",
        "without_scripts": 'The description itself is at <a href="/openapi.json">/openapi.json</a>.',
    },
}
MEDIA_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def add_pages(api: FastAPI) -> None:
    """Serve the explorer at ``/``, the description at ``/docs``, and what both load below ``/assets``."""
    assets = read_assets("tallybox.drawing", "tallybox.service")
    frame = Template(assets["page.html"])

    def add_page(path: str, text: str) -> None:
        @api.get(path, include_in_schema=False)
        async def page() -> Response:
            return Response(text, media_type="text/html; charset=utf-8")

    for path, texts in PAGES.items():
        add_page(path, frame.substitute(texts))

    @api.get("/assets/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        media_type = MEDIA_TYPES.get(name.rpartition(".")[2])
        if name not in assets or media_type is None:
            raise Refused(404, "there is no such file")
        return Response(assets[name], media_type=f"{media_type}; charset=utf-8", headers={"cache-control": "no-cache"})
