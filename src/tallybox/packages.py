"""Optional packages: imported where they are needed, and one clear line where one is missing or broken."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tallybox.errors import TallyboxError


def import_optional(module: str, *, needed_for: str, install: str, package: str | None = None) -> Any:
    """Import a module of an optional package, or raise what is wrong with it and what to install.

    >>> import_optional("no_such_module", needed_for="flying", install="'tallybox[wings]'")
    Traceback (most recent call last):
    tallybox.errors.TallyboxError: flying needs the package no_such_module, which is not installed; \
pip install 'tallybox[wings]'
    """
    try:
        return import_module(module)
    except Exception as error:  # a library built for another torch raises whatever it stumbles on
        top = module.partition(".")[0]
        is_missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == top
        reason = "is not installed" if is_missing else f"cannot be imported here: {first_line(error)}"
        raise TallyboxError(
            f"{needed_for} needs the package {package or top}, which {reason}; pip install {install}"
        ) from (None if is_missing else error)


def first_line(error: Exception) -> str:
    r"""Return the message of an error in one line, its type where it has none.

    >>> first_line(OSError("no such file\nTry again."))
    'no such file'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
