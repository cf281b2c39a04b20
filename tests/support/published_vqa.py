"""The paper's VQA model for one question, written a second time from its appendix, with padding as published.

Plain loops over numbers, on the weights of a file of the published code. A photo is filled up with proposals of zeros,
which take part in the softmax and in the component like any other.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tests.support import oracle

Vector = NDArray[np.float64]


def published_iou(a: oracle.Box, b: oracle.Box) -> float:
    """Intersection over union with 1e-12 in the union: a box without area does not overlap itself."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    return width * height / (oracle.area(a) + oracle.area(b) - width * height + 1e-12)


def fused(x: Vector, y: Vector) -> Vector:
    """x ◇ y = ReLU(x + y) - (x - y)²."""
    return np.maximum(x + y, 0) - (x - y) ** 2


def logistic(x: Vector) -> Vector:
    return 1 / (1 + np.exp(-x))


def literal_answer(
    weights: Mapping[str, Tensor],
    words: list[int],
    features: Vector,
    boxes: Vector,
    proposals: int,
    count: Callable[[Vector, Vector], Vector] | None,
) -> tuple[Vector, Vector]:
    """Logits of the answers to one question about a photo with ``features [N, F]`` and ``boxes [N, 4]``, and glimpses.

    ``count`` gives the features of a count for the glimpses and boxes of all proposals.
    """
    w = {name: value.double().numpy() for name, value in weights.items()}

    # The question: tanh of the embeddings, a GRU, its state after the last word.
    state = np.zeros(w["text.lstm.weight_hh_l0"].shape[1])
    for word in words:
        from_word = w["text.lstm.weight_ih_l0"] @ np.tanh(w["text.embedding.weight"][word]) + w["text.lstm.bias_ih_l0"]
        from_state = w["text.lstm.weight_hh_l0"] @ state + w["text.lstm.bias_hh_l0"]
        reset, update, new = zip(np.split(from_word, 3), np.split(from_state, 3), strict=True)
        update_gate = logistic(update[0] + update[1])
        candidate = np.tanh(new[0] + logistic(reset[0] + reset[1]) * new[1])
        state = (1 - update_gate) * candidate + update_gate * state

    # The photo, then zeros up to the fixed number of proposals.
    v, b = np.zeros((proposals, features.shape[1])), np.zeros((proposals, 4))
    v[: len(features)], b[: len(boxes)] = features, boxes

    # Two glimpses of every proposal, padding included.
    asked = w["attention.q_lin.weight"] @ state + w["attention.q_lin.bias"]
    glimpses = np.zeros((proposals, 2))
    for i in range(proposals):
        together = fused(w["attention.v_conv.weight"].reshape(len(asked), -1) @ v[i], asked)
        glimpses[i] = w["attention.x_conv.weight"].reshape(2, -1) @ together + w["attention.x_conv.bias"]
    shares = np.exp(glimpses) / np.exp(glimpses).sum(0)
    seen = np.concatenate([shares[:, glimpse] @ v for glimpse in range(2)])

    hidden = fused(
        w["classifier.lin11.weight"] @ seen + w["classifier.lin11.bias"],
        w["classifier.lin12.weight"] @ state + w["classifier.lin12.bias"],
    )
    if count is not None:
        projected = w["classifier.lin_c.weight"] @ count(glimpses, b) + w["classifier.lin_c.bias"]
        hidden = hidden + normalised(np.maximum(projected, 0), w, "bn2")
    return w["classifier.lin2.weight"] @ normalised(hidden, w, "bn") + w["classifier.lin2.bias"], glimpses


def published_count(weights: Mapping[str, Tensor], glimpses: Vector, boxes: Vector) -> Vector:
    """The features of the published component for the first glimpse."""
    found = oracle.answer(
        glimpses[:, 0].tolist(),
        [tuple(box) for box in boxes.tolist()],
        [weights[f"counter.f.{k}.weight"][1:].tolist() for k in range(8)],
        max_objects=weights["classifier.lin_c.weight"].shape[1] - 1,
        logits=True,
        overlap=published_iou,
    )
    return np.array(found.features)


def normalised(x: Vector, w: Mapping[str, Vector], name: str) -> Vector:
    """Batch normalisation with the statistics of training."""
    mean, variance = w[f"classifier.{name}.running_mean"], w[f"classifier.{name}.running_var"]
    return (x - mean) / np.sqrt(variance + 1e-5) * w[f"classifier.{name}.weight"] + w[f"classifier.{name}.bias"]
