"""The component's operator: images in one list, fused kernels, and their gradient."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from tallybox.kernels.operators import define_component


def launchers(backend: str) -> ModuleType:
    """Import the launchers of a fused backend, whose package the others do not need."""
    if backend == "cpu":
        from tallybox.presence.cpu import launch
    else:
        from tallybox.presence.cuda import launch  # type: ignore[no-redef]
    return launch


def allocate_results(logit: Tensor, max_objects: int) -> tuple[Tensor, ...]:
    """Return features ``[M * R, K + 2]``, presence ``[M * R, N]`` and distribution ``[M * R, K + 1]``, not written."""
    images = logit.shape[0]
    distribution = logit.new_empty(images, max_objects + 1)
    return logit.new_empty(images, max_objects + 2), torch.empty_like(logit), distribution


presence_operator = define_component("presence", launchers, allocate_results)
