"""Every error a user can cause.

TallyboxError
├── InputError (also a ValueError)      a value, shape or file content is wrong
│   └── InputTypeError (also a TypeError)   a value has the wrong type or dtype
└── BackendError (also a RuntimeError)  a backend was named but cannot run here

Messages have one form: "<name> must be <expected>, but got <actual>; <remedy>".
"""


class TallyboxError(Exception):
    """Base of every error a user can cause."""


class InputError(TallyboxError, ValueError):
    """A value, shape or file content is wrong."""


class InputTypeError(InputError, TypeError):
    """A value has the wrong type or dtype."""


class BackendError(TallyboxError, RuntimeError):
    """A backend was named but cannot run here; the message says why."""
