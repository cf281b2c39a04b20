"""Your own counting components, by ``package.module:Class``.

A component is a `torch.nn.Module` whose class is called with the largest count. Its ``forward(scores, boxes, mask)``
takes ``scores [B, N]``, ``boxes [B, N, 4]`` and ``mask [B, N]`` and returns features ``[B, F]``. Results use its
attribute ``name``. ``examples/soft_nms.py`` is a complete one.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from tallybox.errors import InputError


def import_by_name(spec: str) -> Any:
    """Import what ``package.module:name`` names, also from the current folder."""
    module, _, name = spec.partition(":")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    return getattr(import_module(module), name)


def load_component(spec: str) -> Callable[[int], nn.Module]:
    """Import a component's class.

    >>> load_component("torch.nn:ReLU")
    <class 'torch.nn.modules.activation.ReLU'>
    """
    try:
        component: Callable[[int], nn.Module] = import_by_name(spec)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"Cannot import component {spec!r} as package.module:Class: {error}") from error
    if not callable(component):
        raise InputError(f"Component {spec} is not a class.")
    return component


def component_name(component: nn.Module) -> str:
    """Return the name of a component for results and figures."""
    return str(getattr(component, "name", type(component).__name__))
