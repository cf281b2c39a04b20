"""The component's operator: images in one list, fused kernels, and their gradient."""

from __future__ import annotations

from types import ModuleType

from torch import Tensor

from tallybox.kernels.operators import define_component


def launchers(backend: str) -> ModuleType:
    """Import the launchers of a fused backend, whose package the others do not need."""
    if backend == "cpu":
        from tallybox.counter.cpu import launch
    else:
        from tallybox.counter.cuda import launch  # type: ignore[no-redef]
    return launch


def allocate_results(attention: Tensor, max_objects: int) -> tuple[Tensor, ...]:
    """Return features ``[M * R, max_objects + 1]`` and count ``[M * R]``, not yet written."""
    images = attention.shape[0]
    return attention.new_empty(images, max_objects + 1), attention.new_empty(images)


count_operator = define_component("count", launchers, allocate_results)
