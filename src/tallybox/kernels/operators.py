"""Operators of `torch.library`: kernels that eager, compiled and exported calls reach in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tallybox.errors import BackendError


def define_operator(function: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Register a function that changes none of its arguments as an operator under its own name; return the operator.

    ``fake`` returns tensors of the same shapes without computing them. `torch.library.custom_op` does the same, but
    its first call imports the compiler, which takes more than a second.
    """
    name = f"tallybox::{function.__name__}"
    schema = torch.library.infer_schema(function, mutates_args=())
    torch.library.define(name, schema, tags=torch.Tag.pt2_compliant_tag)
    torch.library.impl(name, ("cpu", "cuda"), function)
    torch.library.register_fake(name, fake)
    return getattr(torch.ops.tallybox, function.__name__)


def refuse_derivatives(backward: Callable[..., Any]) -> None:
    """Raise where a backward operator is differentiated itself: kernels have first derivatives only."""

    def refuse(ctx: Any, *gradients: Any) -> None:
        raise BackendError(
            'fused backends have first derivatives only, but a second derivative was computed; use backend="reference"'
        )

    torch.library.register_autograd(f"tallybox::{backward.__name__}", refuse)
