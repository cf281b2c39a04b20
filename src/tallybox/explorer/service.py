"""The service: counts and explanations over HTTP, and the files of the explorer page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response

from tallybox import __version__
from tallybox.estimator.estimator import CountEstimator
from tallybox.explorer.batching import Batcher, count_jobs
from tallybox.explorer.count_requests import answered, job_of_detections, job_of_photo
from tallybox.explorer.description import answers, body_of, describe, explain_problems
from tallybox.explorer.explaining import explained, warm_up
from tallybox.explorer.guard import App, Guard
from tallybox.explorer.limits import Limits, Refused
from tallybox.explorer.page_files import add_page
from tallybox.explorer.ready_scenes import ready_scenes, toy_scene
from tallybox.explorer.schemas import CountAnswer, CountRequest, ExplainAnswer, ExplainRequest, Health, Scene, WeightSet
from tallybox.explorer.uploads import uploaded_photo
from tallybox.explorer.weights import weight_sets
from tallybox.photos.detector import Detector


@dataclass(frozen=True)
class ServiceSettings:
    """What a service counts with, and whom it answers."""

    estimator: CountEstimator | None = None
    detector: Detector | None = None
    limits: Limits = field(default_factory=Limits)
    token: str | None = None
    hosts: tuple[str, ...] = ()  # names, besides addresses and localhost, by which it may be called
    images_at_once: int = 256  # counted together under load; 1: each on its own


def create_app(settings: ServiceSettings) -> App:
    """Return the ASGI application, ready to be served."""
    return Guard(build_api(settings), settings.limits, settings.token, settings.hosts)


def build_api(settings: ServiceSettings) -> FastAPI:
    """Return the routes without the guard before them."""
    batcher = _batcher(settings)
    detecting = ThreadPoolExecutor(1, thread_name_prefix="tallybox-detect")
    explaining = ThreadPoolExecutor(1, thread_name_prefix="tallybox-explain")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        explaining.submit(warm_up, sets)
        yield
        for thread in (detecting, explaining):
            thread.shutdown()
        if batcher is not None:
            batcher.close()

    sets = weight_sets(settings.estimator)
    api = FastAPI(title="tallybox", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    scenes = ready_scenes()
    explain_problems(api)
    add_page(api)

    @api.post("/v1/count", responses=answers(CountAnswer), openapi_extra=body_of(CountRequest, "image/*"))
    async def count(
        request: Request,
        category: Annotated[list[str], Query(description="Of a photo: answer for these.", max_length=100)] = [],  # noqa: B006 - FastAPI copies it
        detections: Annotated[bool, Query(description="Of a photo: also return what the detector saw.")] = False,
    ) -> Response:
        """Count the objects in detections (JSON) or in a photo (its bytes, with its content type)."""
        estimator = settings.estimator
        if batcher is None or estimator is None:
            raise Refused(503, "counting needs an estimator; start the service with --estimator FILE")
        kind, content = _kind(request), await request.body()
        if kind == "application/json":
            if category or detections:
                raise Refused(
                    422, "category and detections in the address belong to photos; name categories in the body"
                )
            job = job_of_detections(content, estimator, settings.limits)
        elif kind.startswith("image/"):
            if settings.detector is None:
                raise Refused(503, "photos need the detector; install it with: pip install 'tallybox[photos]'")
            photo = await _on(detecting, partial(uploaded_photo, content, settings.limits))
            seen = await _on(detecting, partial(settings.detector.detect, [photo]))
            job = job_of_photo(seen[0], category or None, estimator)
        else:
            raise Refused(415, "Content-Type must be application/json or that of an image, but got another")
        predictions = await batcher.submit(job)
        return reply(answered(job, predictions, estimator, with_detections=detections))

    @api.post("/v1/explain", responses=answers(ExplainAnswer), openapi_extra=body_of(ExplainRequest))
    async def explain(request: Request) -> Response:
        """Count boxes with one component, and return every intermediate quantity."""
        if _kind(request) != "application/json":
            raise Refused(415, "Content-Type must be application/json, but got another")
        asked = ExplainRequest.model_validate_json(await request.body())
        most = settings.limits.explained_boxes
        if len(asked.boxes) > most:
            raise Refused(413, f"at most {most} boxes are explained at once, but got {len(asked.boxes)}")
        return reply(await _on(explaining, partial(explained, asked, sets)))

    @api.get("/v1/weights", responses=answers(dict[str, list[WeightSet]], asks=False))
    async def weights() -> Response:
        """List the sets of weights that a component can be explained with, by component."""
        return reply(sets)

    @api.get("/v1/scenes", responses=answers(list[Scene], asks=False))
    async def list_scenes() -> Response:
        """List the ready-made scenes."""
        return reply(scenes)

    @api.get("/v1/scenes/toy", responses=answers(Scene))
    async def draw_toy_scene(
        side_length: Annotated[float, Query(ge=0, le=1)] = 0.5,
        noise: Annotated[float, Query(ge=0, le=1)] = 0.25,
        seed: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    ) -> Response:
        """Draw a sample of the toy task."""
        return reply(await _on(explaining, partial(toy_scene, side_length, noise, seed)))

    @api.get("/healthz", responses=answers(Health, asks=False))
    async def health() -> Response:
        """Say that the service is there, and what it can do."""
        photos = settings.detector is not None and batcher is not None
        can = {"counts_detections": batcher is not None, "counts_photos": photos}
        return reply({"status": "ok", "version": __version__, **can})

    describe(api)
    return api


def reply(content: Any) -> Response:
    """Write an answer as JSON in plain ASCII, so that no text a request brought can break it."""
    return Response(json.dumps(content, allow_nan=False, separators=(",", ":")), media_type="application/json")


def _batcher(settings: ServiceSettings) -> Batcher | None:
    if settings.estimator is None:
        return None
    count = partial(count_jobs, settings.estimator)
    return Batcher(count, images_at_once=settings.images_at_once, waiting=settings.limits.waiting)


async def _on(thread: ThreadPoolExecutor, work: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(thread, work)


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").split(";")[0].strip().lower()
