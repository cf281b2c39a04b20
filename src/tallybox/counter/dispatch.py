"""Which implementation serves a call, and why: one table."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from tallybox.errors import BackendError, InputError

Backend = Literal["auto", "reference", "cpu", "triton"]


class Choice(NamedTuple):
    """The backend that serves a call, and the reason it was chosen."""

    backend: str
    reason: str


def check_backend(backend: str) -> None:
    """Raise unless ``backend`` is a known name."""
    if backend not in get_args(Backend):
        names = ", ".join(f'"{name}"' for name in get_args(Backend))
        raise InputError(f"backend must be one of {names}, but got {backend!r}")


def choose_backend(requested: Backend) -> Choice:
    """Follow the table for the requested backend."""
    check_backend(requested)
    if requested in ("auto", "reference"):
        return Choice("reference", "plain PyTorch runs everywhere")
    raise BackendError(f'backend "{requested}" is not in this version; use "auto" or "reference"')
