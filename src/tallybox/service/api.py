"""The routes: counts and explanations over HTTP, and the files of the explorer page."""

from asyncio import wrap_future
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.routing import Route

from tallybox import __version__
from tallybox.detections.categories import check_known_ids, quantity
from tallybox.detections.detections import Detections, check_in_image
from tallybox.errors import InputError
from tallybox.estimator.estimator import CountEstimator
from tallybox.estimator.prediction import ImagePredictions
from tallybox.explain import read_assets
from tallybox.explain.explained_count import ExplainedCount, explain_estimate
from tallybox.explain.scenes import ExampleScene, example_scenes, toy_scene
from tallybox.photos.detector import Detector
from tallybox.photos.images import PhotoTooLargeError, read_photo
from tallybox.photos.shipped import SAMPLE_COUNTS, sample_photos
from tallybox.service.batching import Batcher, CountJob, count_jobs
from tallybox.service.guard import PHOTO_TYPE, PROBLEMS, ErrorAnswer, Guard, Limits, answer_problem, content_type
from tallybox.service.models import CountRequest, ExplainRequest, ParameterSet
from tallybox.service.parameters import Explainer

Answer = dict[str, Any]
# FastAPI describes only bodies that it reads itself.
PHOTO_BODY = {"required": True, "content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}
PROBLEM_STATUSES = (400, 401, 403, 408, 413, 415, 422, 429, 503)
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".jpg": "image/jpeg"}


@dataclass(frozen=True)
class ServiceSettings:
    """The estimator and the detector of a service, and its limits."""

    estimator: CountEstimator
    detector: Detector | None = None
    limits: Limits = field(default_factory=Limits)
    token: str | None = None
    hosts: tuple[str, ...] = ()  # names of the service, besides IP addresses and localhost
    images_at_once: int = 256  # counted together under load; 1: each on its own
    no_detector: str = "Photos need the extra: pip install 'tallybox[photos]'"  # the reason, without a detector


def create_app(settings: ServiceSettings) -> Guard:
    """Return the ASGI application, ready to be served."""
    return Guard(build_api(settings), settings.limits, settings.token, settings.hosts)


async def require_json(request: Request) -> None:
    """Refuse other content types, and empty bodies."""
    if content_type(request.scope) != "application/json":
        raise HTTPException(415, "Content-Type must be application/json; photos go to /v1/count/photo.")
    if not await request.body():
        raise HTTPException(400, "The body is empty; send JSON.")


def build_api(settings: ServiceSettings) -> FastAPI:
    """Return the routes without the guard before them."""
    estimator, limits, explainer = settings.estimator, settings.limits, Explainer(settings.estimator)
    count_thread, detect_thread, explain_thread = (
        ThreadPoolExecutor(1, thread_name_prefix=f"tallybox-{work}") for work in ("count", "detect", "explain")
    )
    count_together, at_once = partial(count_jobs, estimator), settings.images_at_once
    batcher = Batcher(count_together, count_thread, images_at_once=at_once, max_pending=limits.pending)

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        with count_thread, detect_thread, explain_thread:
            explain_thread.submit(explainer.warm_up)
            yield

    api = FastAPI(
        title="tallybox",
        version=__version__,
        docs_url=None,  # FastAPI's own pages load their scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses={status: {"model": ErrorAnswer} for status in PROBLEM_STATUSES},
        exception_handlers=dict.fromkeys(PROBLEMS, answer_problem),
        separate_input_output_schemas=False,
    )
    # The dependency only describes the token; the guard checks it before a body is read.
    v1 = APIRouter(prefix="/v1", dependencies=[Depends(HTTPBearer(auto_error=False))] if settings.token else [])
    post_json = partial(v1.post, dependencies=[Depends(require_json)])

    def detect(content: bytes) -> Detections:
        if settings.detector is None:
            raise HTTPException(503, settings.no_detector)
        try:
            photo = read_photo(content, max_pixels=limits.image_pixels)
        except PhotoTooLargeError as error:
            raise HTTPException(413, str(error)) from None
        return settings.detector.detect([photo])[0]

    @post_json("/count")
    async def count(body: CountRequest) -> Answer:
        """Count the objects in detections."""
        job = CountJob(request_images(body, estimator, limits), estimator.category_ids(body.categories))
        counted = await batcher.submit(job)
        return {"images": list(map(image_counts, job.images, counted))}

    @v1.post("/count/photo", openapi_extra={"requestBody": PHOTO_BODY})
    async def count_photo(
        request: Request,
        category: Annotated[list[str] | None, Query(description="Count these only.", max_length=100)] = None,
        boxes: Annotated[bool, Query(description="Also return the boxes of each category.")] = False,
        detections: Annotated[bool, Query(description="Also return all boxes of the detector.")] = False,
    ) -> Answer:
        """Count the objects in a photo."""
        if not content_type(request.scope).startswith(PHOTO_TYPE):
            raise HTTPException(415, "Content-Type must be that of an image.")
        categories = estimator.category_ids(category)
        image = await wrap_future(detect_thread.submit(detect, await request.body()))
        (said,) = await batcher.submit(CountJob([image], categories))
        answer = {**image_counts(image, said), "size": image.image_size}
        if boxes:
            answer["boxes"] = await wrap_future(explain_thread.submit(category_boxes, estimator, image, said))
        if detections:
            lists = {name: getattr(image, name).tolist() for name in ("boxes", "scores", "category_ids")}
            answer["detections"] = {**lists, "size": image.image_size}
        return {"images": [answer]}

    @post_json("/explain")
    async def explain_boxes(body: ExplainRequest) -> ExplainedCount:
        """Count boxes with one component or the estimator, and return every intermediate quantity."""
        number = max(len(body.boxes), len(body.context.boxes) // 10)
        if number > limits.explained_boxes:
            raise HTTPException(413, f"At most {limits.explained_boxes} boxes are explained at once; got {number}.")
        return await wrap_future(explain_thread.submit(explainer.explain, body))

    @v1.get("/categories")
    async def categories() -> list[Answer]:
        """List the categories of the estimator."""
        learned, names = set(estimator.fitted.category_ids), sorted(estimator.fitted.categories.items())
        return [{"id": key, "name": name, "learned": key in learned} for key, name in names]

    @v1.get("/parameters")
    async def parameters() -> dict[str, list[ParameterSet]]:
        """List the sets of learned parameters by component."""
        return {component: list(sets.values()) for component, sets in explainer.sets.items()}

    @v1.get("/scenes")
    async def list_scenes() -> list[ExampleScene]:
        """List the example scenes."""
        return example_scenes()

    @v1.get("/scenes/toy")
    async def draw_toy_scene(
        side_length: Annotated[float, Query(ge=0, le=1)] = 0.5,
        noise: Annotated[float, Query(ge=0, le=1)] = 0.25,
        seed: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    ) -> ExampleScene:
        """Draw an image of the toy task."""
        return await wrap_future(explain_thread.submit(toy_scene, side_length, noise, seed))

    @v1.get("/photos")
    async def photos() -> list[Answer]:
        """List the sample photos with their true counts; none if the service cannot count photos."""
        names = [path.name for path in reversed(sample_photos())] if settings.detector is not None else []
        return [{"name": name, "truth": SAMPLE_COUNTS[name]} for name in names]

    @api.get("/healthz")
    async def health() -> Answer:
        """Return the state of the service."""
        return {"status": "ok", "version": __version__, "counts_photos": settings.detector is not None}

    api.include_router(v1)
    add_files(api)
    return api


def request_images(request: CountRequest, estimator: CountEstimator, limits: Limits) -> list[Detections]:
    """Check the sizes of a request, then its boxes."""
    images, boxes = len(request.images), sum(len(image.boxes) for image in request.images)
    for name, number, limit in (("images", images, limits.images), ("boxes", boxes, limits.boxes)):
        if number > limit:
            raise HTTPException(413, f"A request must have at most {limit:,} {name}; got {number:,}.")
    checked = []
    for index, image in enumerate(request.images):
        check_known_ids(image.category_ids, estimator.fitted.categories, f"images[{index}]")
        try:
            made = Detections(image.boxes, image.scores, image.category_ids, image.size, image.image)  # type: ignore[arg-type]  # takes lists
            check_in_image(made, made.image_size, "size")
        except InputError as error:
            raise InputError(f"images[{index}]: {error}") from None
        checked.append(made)
    return checked


def image_counts(image: Detections, predictions: ImagePredictions) -> Answer:
    """Return the answer about one image, with its counts by name."""
    counts = {name: prediction.to_dict() for name, prediction in predictions.by_name().items()}
    return {"image": image.image_id, "counts": counts}


def category_boxes(estimator: CountEstimator, image: Detections, predictions: ImagePredictions) -> Answer:
    """Return the boxes of each predicted category by name, counted ones first, as a page draws them."""
    answers = {}
    for key, explanation in estimator.explain(image, predictions=predictions).items():
        explained, _ = explain_estimate(estimator, image, key, explanation)
        name, prediction = estimator.category_name(key), explanation.prediction
        fields = ("boxes", "scores", "presence", "duplicate_of", "baselines")
        answers[name] = {
            "category_id": key,
            "label": quantity(prediction.count, name),
            "probability": prediction.probability_of_any,
            **{field: getattr(explained, field) for field in fields},
        }
    return answers


def add_files(api: FastAPI) -> None:
    """Serve the explorer at ``/``, and its files from memory: no path is made from a request."""
    files = {f"/photos/{photo.name}": photo.read_bytes() for photo in sample_photos()}
    for name, text in read_assets("tallybox.explain", "tallybox.service").items():
        files["/" if name == "explorer.html" else f"/assets/{name}"] = text.encode()
    for path, content in files.items():
        media_type = MEDIA_TYPES.get(PurePosixPath(path).suffix, "text/html")
        answer = Response(content, media_type=media_type, headers={"cache-control": "no-cache"})
        api.router.routes.append(Route(path, answer, methods=["GET"]))
