"""The stored cases of the published module: inputs, outputs and every gradient, in float64."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

CASES_FILE = Path(__file__).parents[1] / "data" / "counter_cases.npz"
CASE_NUMBERS = range(6)


class ReferenceCase(NamedTuple):
    """One call of the published module and its backward pass."""

    attention: Tensor  # [B, N]
    boxes: Tensor  # [B, N, 4]
    weights: Tensor  # [8, 17], entry 0 of each a fixed zero
    objects: int
    logits: bool
    features: Tensor  # [B, objects + 1]
    grad_features: Tensor
    grad_attention: Tensor
    grad_boxes: Tensor
    grad_weights: Tensor


def load_case(number: int) -> ReferenceCase:
    with np.load(CASES_FILE) as stored:
        arrays = {key.split("/")[1]: stored[key] for key in stored.files if key.startswith(f"{number}/")}
    objects, logits = int(arrays.pop("objects")), bool(arrays.pop("logits"))
    return ReferenceCase(**{name: torch.from_numpy(a) for name, a in arrays.items()}, objects=objects, logits=logits)


def published_state_dict(
    weights: Tensor, *, activations: int = 16, entries: int = 17, prefix: str = ""
) -> dict[str, Tensor]:
    """A checkpoint as the published code (16 activations, 17 entries) or a copy of it writes one."""
    untrained = torch.ones(17, dtype=weights.dtype)
    untrained[0] = 0
    rows = [*weights, *(untrained for _ in range(len(weights), activations))]
    return {f"{prefix}f.{k}.weight": row[17 - entries :].clone() for k, row in enumerate(rows)}
