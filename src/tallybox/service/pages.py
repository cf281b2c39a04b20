"""The explorer page, the description page and their files, held in memory: no path is made from a request."""

from fastapi import Response
from fastapi.responses import JSONResponse
from starlette.routing import Route

from tallybox.explain import read_assets
from tallybox.photos.shipped import sample_photos

MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def page_routes() -> list[Route]:
    """Return the explorer at ``/``, the description at ``/docs``, and what they load below ``/assets``, ``/photos``."""
    assets, photos = read_assets("tallybox.explain", "tallybox.service"), sample_photos()
    paths = {"explorer.html": "/", "docs.html": "/docs"}
    answers: dict[str, Response] = {"/photos": JSONResponse([photo.name for photo in photos])}
    for name, content in assets.items():
        media_type = MEDIA_TYPES[name[name.rindex(".") :]]
        answers[paths.get(name, f"/assets/{name}")] = Response(content, media_type=media_type)
    for photo in photos:
        answers[f"/photos/{photo.name}"] = Response(photo.read_bytes(), media_type="image/jpeg")
    for answer in answers.values():
        answer.headers["cache-control"] = "no-cache"
    return [Route(path, answer, methods=["GET"]) for path, answer in answers.items()]
