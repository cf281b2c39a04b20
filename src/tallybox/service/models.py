"""Request bodies and answers; FastAPI checks them and describes them in ``/openapi.json``.

`Counting`, `ExampleScene` and `WeightSet` are answers too: the dataclasses that the library itself uses.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

# Areas of larger boxes would leave the range in which single precision tells them apart.
MAX_COORDINATE = 1_000_000.0

Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE, allow_inf_nan=False)]
Box = Annotated[
    list[Coordinate], Field(min_length=4, max_length=4, description="x1, y1, x2, y2 with x1 <= x2 and y1 <= y2")
]
Boxes = Annotated[list[Box], Field(fail_fast=True)]  # a body with 100,000 wrong values is refused at the first
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Shares = Annotated[list[Share], Field(fail_fast=True, description="One for each box.")]
Knots = Annotated[list[Share], Field(min_length=2, max_length=65)]
CategoryId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Size = Annotated[list[Annotated[int, Field(ge=1, le=MAX_COORDINATE)]], Field(min_length=2, max_length=2)]
Name = Annotated[str, Field(max_length=200)]


class RequestModel(BaseModel):
    """Part of a request: unknown keys are errors, and a text is no number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ImageDetections(RequestModel):
    """What a detector finds in one image; nothing suppressed."""

    image: Annotated[Name | int | None, Field(description="Comes back with the answer.")] = None
    boxes: Boxes
    scores: Shares
    category_ids: list[CategoryId] = Field(fail_fast=True, description="One for each box, as the estimator knows them.")
    size: Annotated[Size | None, Field(description="Width and height of the image, where known.")] = None


class CountRequest(RequestModel):
    """Images to count in."""

    images: Annotated[list[ImageDetections], Field(fail_fast=True)]
    categories: Annotated[list[Name | CategoryId], Field(fail_fast=True, max_length=1000)] | None = Field(
        None, description="Names or ids to answer for; without it, every category that is more than 10 % probable."
    )


class CategoryCount(BaseModel):
    """How many there are of one category."""

    count: int = Field(description="The median.")
    most_probable: int
    expected: float = Field(description="The mean.")
    low: int = Field(description="The interval's lower end; nine of ten such intervals hold the true count.")
    high: int
    at_least: int = Field(0, description="Counts from here on have no probabilities of their own; left out where 0.")
    saturated: bool = Field(False, description="A limit was reached: there may be more. Left out if false.")
    calibrated: bool = Field(True, description="Left out where true.")


class CategoryInfo(BaseModel):
    """One category of the estimator."""

    id: int
    name: str
    learned: bool = Field(description="Whether the estimator learned from labels of it.")


class ImageCounts(BaseModel):
    """The counts of one image by name of category."""

    image: str | int | None
    counts: dict[str, CategoryCount]
    detections: ImageDetections | None = Field(None, description="With ?detections=true: what the detector found.")
    category_ids: dict[str, int] | None = Field(None, description="With ?detections=true: the ids of these categories.")


class CountAnswer(BaseModel):
    """The counts of each image, in the order of the request."""

    images: list[ImageCounts]


class NmsThresholds(RequestModel):
    """The NMS + threshold to compare with."""

    iou: Share = 0.5
    score: Share = 0.5


class ExplainRequest(RequestModel):
    """Boxes and attention weights to count with one component."""

    component: Literal["counter", "presence"] = "counter"
    boxes: Boxes
    attention: Shares
    max_objects: Annotated[int, Field(ge=1, le=100)] = 10
    weights: Name = Field("untrained", description="The name of a set that GET /v1/weights lists.")
    activations: Annotated[list[Knots], Field(min_length=8, max_length=8)] | None = Field(
        None, description="f1 ... f8 at their knots, rising from 0 to 1: instead of a set of weights (paper only)."
    )
    nms: NmsThresholds = NmsThresholds()


class Health(BaseModel):
    """That the service runs, and what it can count."""

    status: Literal["ok"] = "ok"
    version: str
    counts_detections: Literal[True] = True
    counts_photos: bool
