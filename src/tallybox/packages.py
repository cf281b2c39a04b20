"""Optional packages: imported where they are needed, and one clear line where one is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tallybox.errors import TallyboxError


def import_optional(module: str, *, needed_for: str, extra: str, package: str | None = None) -> Any:
    """Import a module of an optional package, or name the extra of tallybox that installs it.

    >>> import_optional("no_such_module", needed_for="flying", extra="wings")
    Traceback (most recent call last):
    tallybox.errors.TallyboxError: flying needs the package no_such_module, which is not installed; \
pip install 'tallybox[wings]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != top:  # something that the package itself needs
            raise
        raise TallyboxError(
            f"{needed_for} needs the package {package or top}, which is not installed; pip install 'tallybox[{extra}]'"
        ) from None
