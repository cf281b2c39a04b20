"""What the service takes and gives, as OpenAPI describes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# Areas of larger boxes would leave the range in which single precision tells them apart.
FARTHEST = 1_000_000.0

Coordinate = Annotated[float, Field(ge=-FARTHEST, le=FARTHEST, allow_inf_nan=False)]
Box = Annotated[
    list[Coordinate], Field(min_length=4, max_length=4, description="x1, y1, x2, y2 with x1 <= x2 and y1 <= y2")
]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
CategoryId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Name = Annotated[str, Field(max_length=200)]


class Asked(BaseModel):
    """A request: unknown keys are mistakes, and a text is no number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ImageDetections(Asked):
    """What a detector says about one image; nothing suppressed."""

    image: Name | int | None = Field(None, description="Comes back with the answer.")
    boxes: list[Box]
    scores: list[Share] = Field(description="One for each box.")
    category_ids: list[CategoryId] = Field(description="One for each box, as the estimator knows them.")
    size: Annotated[list[Annotated[int, Field(ge=1, le=FARTHEST)]], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Width and height of the image, where known."
    )


class CountRequest(Asked):
    """Images to count in."""

    images: list[ImageDetections]
    categories: list[Name | CategoryId] | None = Field(
        None,
        max_length=1000,
        description="Names or ids to answer for; without it, every category that is more than 10 % probable.",
    )


class Count(BaseModel):
    """How many there are of one category."""

    count: int = Field(description="The median.")
    most_probable: int
    expected: float = Field(description="The mean.")
    low: int = Field(description="The interval's lower end; nine of ten such intervals hold the true count.")
    high: int
    at_least: int = Field(0, description="Counts from here on have no probabilities of their own; left out where 0.")
    calibrated: bool = Field(True, description="Left out where true.")


class CountedImage(BaseModel):
    """The counts of one image by name of category."""

    image: str | int | None
    counts: dict[str, Count]
    detections: ImageDetections | None = Field(None, description="With ?detections=true: what the detector saw.")


class CountAnswer(BaseModel):
    """The counts of each image, in the order asked."""

    images: list[CountedImage]


class NmsThresholds(Asked):
    """The NMS + threshold to compare with."""

    iou: Share = 0.5
    score: Share = 0.5


class ExplainRequest(Asked):
    """Boxes and weights to count with one component."""

    component: Literal["paper", "presence"] = "paper"
    boxes: list[Box]
    attention: list[Share] = Field(description="One for each box.")
    max_objects: Annotated[int, Field(ge=1, le=100)] = 10
    weights: Name = Field("untrained", description="The name of a set that GET /v1/weights lists.")
    activations: (
        Annotated[list[Annotated[list[Share], Field(min_length=2, max_length=65)]], Field(min_length=8, max_length=8)]
        | None
    ) = Field(
        None, description="f1 ... f8 at their knots, rising from 0 to 1: instead of a set of weights (paper only)."
    )
    nms: NmsThresholds = NmsThresholds()


class Step(BaseModel):
    """One step of how the count came about."""

    title: str
    text: str


class ExplainAnswer(BaseModel):
    """Everything that was computed on the way to a count."""

    component: Literal["paper", "presence"]
    count: float
    confidence: float | None = Field(description="Of the paper's component.")
    distribution: list[float] = Field(description="Of counts 0, 1 ...; for the paper's component its features.")
    presence: list[float] = Field(description="How far each box counts.")
    merged_into: list[int] = Field(description="Which counted box stands for each: itself, another, or -1.")
    indices: list[int] = Field(description="Which box each row of the trace is.")
    trace: dict[str, Any] = Field(description="The CountTrace or PresenceTrace of the library.")
    functions: dict[str, Any] = Field(description="What was learned, as points to draw.")
    baselines: dict[str, Any] = Field(description="What adding up and NMS + threshold would say.")
    steps: list[Step]


class Problem(BaseModel):
    """Why there is no answer, in one line."""

    error: str


class Health(BaseModel):
    """That the service is there, and what it can do."""

    status: Literal["ok"]
    version: str
    counts_detections: bool
    counts_photos: bool


class Scene(BaseModel):
    """Boxes on a canvas, to start from."""

    name: str
    label: str
    width: int
    height: int
    boxes: list[list[float]]
    attention: list[float]
    true_count: int | None = None


class WeightSet(BaseModel):
    """A set of weights by its name."""

    name: str
    label: str
    weights: Any = Field(description="Knots of the eight activations, or the fields of PresenceWeights.")
