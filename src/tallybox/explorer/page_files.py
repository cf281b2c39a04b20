"""The files of the explorer page, held in memory: no path is ever made of what a request says."""

from __future__ import annotations

from importlib.resources import files
from string import Template

from fastapi import FastAPI, Response

from tallybox.explorer.bundle import asset
from tallybox.explorer.limits import Refused

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
KINDS = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def add_page(api: FastAPI) -> None:
    """Serve the page at ``/``, the description of the service at ``/docs``, and what they load below ``/assets``."""
    folder = files("tallybox.explorer") / "assets"
    names = [entry.name for entry in folder.iterdir() if entry.name.endswith(tuple(KINDS))]
    loaded = {name: asset(name) for name in names}
    frame = Template(asset("page.html"))

    def add(path: str, text: str) -> None:
        @api.get(path, include_in_schema=False)
        async def page() -> Response:
            return Response(text, media_type="text/html; charset=utf-8")

    for path, shown in PAGES.items():
        add(path, frame.substitute(shown))

    @api.get("/assets/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in loaded:
            raise Refused(404, "there is no such file")
        kind = next(kind for suffix, kind in KINDS.items() if name.endswith(suffix))
        return Response(loaded[name], media_type=f"{kind}; charset=utf-8", headers={"cache-control": "no-cache"})
