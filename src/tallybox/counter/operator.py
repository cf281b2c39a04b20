"""The component's operator: images in one list, fused kernels, and their gradient."""

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


def result_shapes(attention: Tensor, max_objects: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of features and count for ``attention [M * R, N]``."""
    images = attention.shape[0]
    return (images, max_objects + 1), (images,)


count_operator = define_component("count", launchers, result_shapes)
