"""Your own counting components, by ``package.module:Class``.

A component is a `torch.nn.Module` whose class is called with the largest count. Its ``forward(scores, boxes, mask)``
takes ``scores [B, N]``, ``boxes [B, N, 4]`` and ``mask [B, N]`` and returns features ``[B, F]``. Results use its
attribute ``name``. ``examples/soft_nms.py`` is a complete one.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from torch import nn

from tallybox.errors import InputError


def load_component(spec: str) -> Callable[[int], nn.Module]:
    """Import a component's class, also from the current folder.

    >>> load_component("torch.nn:ReLU")
    <class 'torch.nn.modules.activation.ReLU'>
    """
    module, _, name = spec.partition(":")
    if not name:
        raise InputError(f"Unknown component {spec!r}; name your own as package.module:Class.")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        component = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"Cannot import component {spec}: {error}") from error
    if not callable(component):
        raise InputError(f"Component {spec} is not a class.")
    return component  # type: ignore[no-any-return]  # checked above


def component_name(component: nn.Module) -> str:
    """Return the name of a component for results and figures."""
    return str(getattr(component, "name", type(component).__name__))
