"""The routes: counts and explanations over HTTP, and the files of the explorer page."""

from asyncio import wrap_future
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from tallybox import __version__
from tallybox.detections.detections import Detections
from tallybox.estimator.estimator import CountEstimator
from tallybox.explain.counting import Counting
from tallybox.explain.scenes import ExampleScene, example_scenes, toy_scene
from tallybox.photos.detector import Detector
from tallybox.photos.images import Photo
from tallybox.service.batching import Batcher, CountJob, count_jobs
from tallybox.service.count_requests import checked_categories, count_answer, count_job
from tallybox.service.explaining import WeightSet, explain, warm_up, weight_sets
from tallybox.service.guard import PHOTO_TYPES, Guard, content_type
from tallybox.service.limits import Limits
from tallybox.service.models import CategoryInfo, CountAnswer, CountRequest, ExplainRequest, Health
from tallybox.service.pages import page_routes
from tallybox.service.problems import PROBLEMS, answer_problem, problem_responses
from tallybox.service.uploads import FORM_DESCRIPTION, Uploads, detected_photos, outlined_photo, read_uploads

PhotoUploads = Annotated[Uploads, Depends(read_uploads)]


@dataclass(frozen=True)
class ServiceSettings:
    """What a service counts with, and whom it answers."""

    estimator: CountEstimator
    detector: Detector | None = None
    limits: Limits = field(default_factory=Limits)
    token: str | None = None
    hosts: tuple[str, ...] = ()  # names, besides addresses and localhost, by which it may be called
    images_at_once: int = 256  # counted together under load; 1: each on its own


def create_app(settings: ServiceSettings) -> Guard:
    """Return the ASGI application, ready to be served."""
    api = build_api(settings)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Version 0.1 took photos at the path of detections.
        if scope["type"] == "http" and scope["path"] == "/v1/count" and content_type(scope).startswith(PHOTO_TYPES):
            scope = {**scope, "path": "/v1/count/photo", "raw_path": b"/v1/count/photo"}
        await api(scope, receive, send)

    return Guard(app, settings.limits, settings.token, settings.hosts)


async def require_json(request: Request) -> None:
    """Refuse other content types, and empty bodies."""
    if content_type(request.scope) != "application/json":
        raise HTTPException(415, "Content-Type must be application/json, but got another; photos go to /v1/count/photo")
    if not await request.body():
        raise HTTPException(400, "the body must be JSON, but it is empty")


async def require_photos(request: Request) -> None:
    """Refuse other content types."""
    if not content_type(request.scope).startswith(PHOTO_TYPES):
        raise HTTPException(415, "Content-Type must be that of an image or multipart/form-data, but got another")


def build_api(settings: ServiceSettings) -> FastAPI:
    """Return the routes without the guard before them."""
    estimator, limits = settings.estimator, settings.limits
    count_thread = ThreadPoolExecutor(1, thread_name_prefix="tallybox-count")
    detect_thread = ThreadPoolExecutor(1, thread_name_prefix="tallybox-detect")
    explain_thread = ThreadPoolExecutor(1, thread_name_prefix="tallybox-explain")
    sets, scenes = weight_sets(estimator), example_scenes()
    count_all, at_once = partial(count_jobs, estimator), settings.images_at_once
    batcher = Batcher(count_all, count_thread, images_at_once=at_once, max_pending=limits.pending)

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        with count_thread, detect_thread, explain_thread:
            explain_thread.submit(warm_up, sets)
            yield

    api = FastAPI(
        title="tallybox",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=problem_responses(400, 401, 403, 408, 413, 429),
        exception_handlers=dict.fromkeys(PROBLEMS, answer_problem),
        separate_input_output_schemas=False,
    )
    # The dependency only describes the token; the guard checks it before a body is read.
    v1 = APIRouter(prefix="/v1", dependencies=[Depends(HTTPBearer(auto_error=False))] if settings.token else [])
    post_json = partial(v1.post, responses=problem_responses(415, 422), dependencies=[Depends(require_json)])
    photo_problems = problem_responses(415, 422, 503)
    post_photos = partial(v1.post, openapi_extra=FORM_DESCRIPTION, dependencies=[Depends(require_photos)])

    async def detect(uploads: Uploads) -> list[tuple[Photo, Detections]]:
        if settings.detector is None:
            raise HTTPException(503, "photos need the detector; install it with: pip install 'tallybox[photos]'")
        return await wrap_future(detect_thread.submit(detected_photos, uploads, settings.detector, limits))

    @post_json("/count", response_model_exclude_defaults=True)
    async def count(request: Request, body: CountRequest) -> CountAnswer:
        """Count the objects in detections."""
        if request.query_params.keys() & {"category", "detections"}:
            message = "category and detections in the address belong to photos; name categories in the body"
            raise HTTPException(422, message)
        job = count_job(body, estimator, limits)
        return count_answer(job, await batcher.submit(job))

    @post_photos("/count/photo", responses=photo_problems, response_model_exclude_defaults=True)
    async def count_photo(
        uploads: PhotoUploads,
        detections: Annotated[bool, Query(description="Also return what the detector found.")] = False,
    ) -> CountAnswer:
        """Count the objects in a photo, or in each photo of a form."""
        categories = checked_categories(uploads.categories or None, estimator)
        job = CountJob(tuple(photo_detections for _, photo_detections in await detect(uploads)), categories)
        return count_answer(job, await batcher.submit(job), with_detections=detections)

    @post_photos("/outline", responses=photo_problems | {200: {"content": {"image/jpeg": {}}}}, response_class=Response)
    async def outline_photo(uploads: PhotoUploads) -> Response:
        """Return a photo as a JPEG with its objects outlined and, below it, the counts in words."""
        if len(uploads.files) > 1:
            raise HTTPException(422, f"one photo is outlined at a time, but got {len(uploads.files)}")
        categories = checked_categories(uploads.categories or None, estimator)
        ((photo, detections),) = await detect(uploads)
        picture = await wrap_future(detect_thread.submit(outlined_photo, photo, detections, estimator, categories))
        return Response(picture, media_type="image/jpeg")

    @post_json("/explain")
    async def explain_boxes(body: ExplainRequest) -> Counting:
        """Count boxes with one component, and return every intermediate quantity."""
        boxes, max_boxes = len(body.boxes), limits.explained_boxes
        if boxes > max_boxes:
            raise HTTPException(413, f"at most {max_boxes} boxes are explained at once, but got {boxes}")
        return await wrap_future(explain_thread.submit(explain, body, sets))

    @v1.get("/categories")
    async def categories() -> list[CategoryInfo]:
        """List the categories that can be counted."""
        learned, names = set(estimator.fitted.category_ids), sorted(estimator.fitted.categories.items())
        return [CategoryInfo(id=key, name=name, learned=key in learned) for key, name in names]

    @v1.get("/weights")
    async def weights() -> dict[str, list[WeightSet]]:
        """List the sets of weights that a component can be explained with, by component."""
        return sets

    @v1.get("/scenes")
    async def list_scenes() -> list[ExampleScene]:
        """List the example scenes."""
        return scenes

    @v1.get("/scenes/toy", responses=problem_responses(422))
    async def draw_toy_scene(
        side_length: Annotated[float, Query(ge=0, le=1)] = 0.5,
        noise: Annotated[float, Query(ge=0, le=1)] = 0.25,
        seed: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    ) -> ExampleScene:
        """Draw a sample of the toy task."""
        return await wrap_future(explain_thread.submit(toy_scene, side_length, noise, seed))

    @api.get("/healthz")
    async def health() -> Health:
        """Say that the service runs, and what it can count."""
        return Health(version=__version__, counts_photos=settings.detector is not None)

    api.include_router(v1)
    api.router.routes += page_routes()
    return api
