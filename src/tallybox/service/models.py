"""Request bodies; FastAPI checks them and describes them in ``/openapi.json``."""

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
    """Part of a request: unknown keys and numbers as text are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ImageDetections(RequestModel):
    """All boxes of a detector in one image, without NMS."""

    image: Annotated[Name | int | None, Field(description="Returned with the counts.")] = None
    boxes: Boxes
    scores: Shares
    category_ids: list[CategoryId] = Field(fail_fast=True, description="One for each box, the ids of the estimator.")
    size: Annotated[Size | None, Field(description="Width and height of the image, if known.")] = None


class CountRequest(RequestModel):
    """Images to count in."""

    images: Annotated[list[ImageDetections], Field(fail_fast=True)]
    categories: Annotated[list[Name | CategoryId], Field(fail_fast=True, max_length=1000)] | None = Field(
        None, description="Names or ids to count; by default every category with a probability above 10 %."
    )


class NmsThresholds(RequestModel):
    """The NMS to compare with."""

    iou: Share = 0.5
    score: Share = 0.5


class ExplainRequest(RequestModel):
    """Boxes and their scores, to count with one component or with the estimator."""

    component: Literal["counter", "presence", "estimator"] = "counter"
    boxes: Boxes
    attention: Shares
    max_objects: Annotated[int, Field(ge=1, le=100)] = 10
    parameters: Name = Field("untrained", description="The name of a set that GET /v1/parameters lists.")
    activations: Annotated[list[Knots], Field(min_length=8, max_length=8)] | None = Field(
        None, description="f1 ... f8 at their knots, rising from 0 to 1: instead of a set (counter only)."
    )
    nms: NmsThresholds = NmsThresholds()
    category: Name | CategoryId = Field("", description="The category of the boxes (estimator only).")
    context: ImageDetections = Field(
        ImageDetections(boxes=[], scores=[], category_ids=[]),
        description="Boxes of other categories in the same image, and its size (estimator only).",
    )


class ParameterSet(BaseModel):
    """A set of learned parameters."""

    name: str
    label: str
    scenes: Literal["all", "toy", "photo"] = Field(description="The kind of scenes that it was trained for.")
