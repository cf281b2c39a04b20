"""The component written a second time from the paper alone: plain Python floats, plain loops, no tensors.

One image and one set of eight activations at a time. Slow, and meant to be obviously right.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

Box = tuple[float, float, float, float]


class Answer(NamedTuple):
    """What the paper's section 4 gives for one image."""

    count: float
    confidence: float
    features: list[float]


def activation(x: float, weight: list[float]) -> float:
    """f(x) = Σ_i max(0, 1 - |d x - i|) Σ_{j<=i} |w_j| / Σ_m |w_m| (appendix A)."""
    d = len(weight)
    total = sum(abs(w) for w in weight)
    value = 0.0
    for i in range(1, d + 1):
        value += max(0.0, 1 - abs(d * x - i)) * sum(abs(w) for w in weight[:i]) / total
    return value


def area(box: Box) -> float:
    x1, y1, x2, y2 = box
    return (x2 - x1) * (y2 - y1)


def iou(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = width * height if width > 0 and height > 0 else 0.0
    union = area(a) + area(b) - shared
    if union > 0:
        return shared / union
    return 1.0 if a == b else 0.0


def answer(
    attention: list[float],
    boxes: list[Box],
    weight: list[list[float]],
    *,
    max_objects: int,
    mask: list[bool] | None = None,
    logits: bool = False,
    overlap: Callable[[Box, Box], float] = iou,
) -> Answer:
    """Follow section 4 for one image."""
    f = [None, *(lambda x, w=w: activation(x, w) for w in weight)]  # f[1] ... f[8], as the paper numbers them

    real = [i for i in range(len(attention)) if mask is None or mask[i]]
    kept = sorted(real, key=lambda i: -attention[i])[:max_objects]
    a = [1 / (1 + math.exp(-attention[i])) if logits else attention[i] for i in kept]
    b = [tuple(boxes[i]) for i in kept]
    n = len(kept)

    relevance = [[a[i] * a[j] for j in range(n)] for i in range(n)]
    distance = [[1 - overlap(b[i], b[j]) for j in range(n)] for i in range(n)]
    edges = [[f[1](relevance[i][j]) * f[2](distance[i][j]) for j in range(n)] for i in range(n)]
    rows = [[f[4](relevance[i][j]) * f[5](distance[i][j]) for j in range(n)] for i in range(n)]

    scale = []
    for i in range(n):
        similarity_sum = 0.0
        for j in range(n):
            similarity = f[3](1 - abs(a[i] - a[j]))
            for k in range(n):
                similarity *= f[3](1 - abs(rows[i][k] - rows[j][k]))
            similarity_sum += similarity
        scale.append(1 / similarity_sum)

    number_of_edges = 0.0
    for i in range(n):
        for j in range(n):
            number_of_edges += edges[i][j] * scale[i] * scale[j]
        number_of_edges += scale[i] * f[1](a[i] * a[i])
    count = min(math.sqrt(number_of_edges), max_objects)

    one_hot = [max(0.0, 1 - abs(count - i)) for i in range(max_objects + 1)]

    # An image without proposals is as certain as can be: there is nothing to be unsure of.
    attention_confidence = distance_confidence = 0.5
    if n > 0:
        attention_confidence = sum(abs(f[6](x) - 0.5) for x in a) / n
        distance_confidence = sum(abs(f[7](x) - 0.5) for row in distance for x in row) / n**2
    confidence = f[8](attention_confidence + distance_confidence)
    return Answer(count, confidence, [confidence * o for o in one_hot])
