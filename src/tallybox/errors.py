"""Every error a user can cause, and the one helper that suggests a similar name.

TallyboxError
├── InputError (also a ValueError)      a value, shape or file content is wrong
│   └── InputTypeError (also a TypeError)   a value has the wrong type or dtype
└── BackendError (also a RuntimeError)  a backend was named but cannot run here

A message says what is wrong, where, and what to do about it, in plain English.
"""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_COMPARED = 200  # characters of a name; difflib takes quadratic time


class TallyboxError(Exception):
    """Base of every error a user can cause."""


class InputError(TallyboxError, ValueError):
    """A value, shape or file content is wrong."""


class InputTypeError(InputError, TypeError):
    """A value has the wrong type or dtype."""


class BackendError(TallyboxError, RuntimeError):
    """A backend was named but cannot run here; the message says why."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion to append to an error about an unknown name; empty if no known name is similar.

    >>> did_you_mean("perzon", ["person", "dog"]), did_you_mean("bolt", ["bowl", "boat"])
    ("; did you mean 'person'?", '')
    """
    names = {choice.casefold(): choice for choice in known}
    close = get_close_matches(name[:MAX_COMPARED].casefold(), names, n=1, cutoff=0.8)
    return f"; did you mean {names[close[0]]!r}?" if close else ""
