"""Importing a detection library that may be missing or broken, and choosing the device of its models."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from tallybox.errors import TallyboxError


def import_library(name: str, *, install: str) -> Any:
    """Import a library that is not a dependency, or say in one line why that fails and how to install it."""
    try:
        return import_module(name)
    except Exception as error:  # a library built for another torch raises whatever it stumbles on
        package = name.partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            reason = "is not installed"
        else:
            reason = f"cannot be imported here: {first_line(error)}"
        raise TallyboxError(
            f"this detector needs the package {package}, which {reason}; pip install {install}"
        ) from error


def device_or_default(device: str | torch.device | None) -> torch.device:
    """Return the device asked for, by default the GPU where there is one."""
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def first_line(error: Exception) -> str:
    r"""Return what an error says, in one line.

    >>> first_line(OSError("no such file\nTry again."))
    'no such file'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
