"""Backward passes that cannot be differentiated themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.autograd.function import once_differentiable


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Do as `once_differentiable` does, at no cost where nobody asks for a second derivative.

    Its bookkeeping takes 20 µs a call, a tenth of all that a small call costs the host.
    """
    guarded: Callable[..., Any] = once_differentiable(backward)

    @wraps(backward)
    def run(ctx: Any, *gradients: Any) -> Any:
        # Only a graph of the backward pass (create_graph=True) computes it with gradients enabled.
        return guarded(ctx, *gradients) if torch.is_grad_enabled() else backward(ctx, *gradients)

    return run
