"""Standard output is ours alone: results and nothing else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _OfOneThread:
    """Standard output for the thread that made this; what others print goes to standard error."""

    def __init__(self) -> None:
        self._thread, self._output = threading.get_ident(), sys.stdout

    def write(self, text: str) -> int:
        output = self._output if threading.get_ident() == self._thread else sys.stderr
        return output.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


@contextmanager
def reserved_standard_output() -> Iterator[None]:
    """Keep away from standard output what libraries print from threads of their own, as Ray does of lost machines."""
    before = sys.stdout
    sys.stdout = _OfOneThread()  # it passes on all that a stream has
    try:
        yield
    finally:
        sys.stdout = before
