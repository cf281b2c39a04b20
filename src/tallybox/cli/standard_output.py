"""Standard output belongs to the command: results and nothing else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _CommandOutput:
    """Standard output for the thread that created this; what other threads print goes to standard error."""

    def __init__(self) -> None:
        self._thread, self._output = threading.get_ident(), sys.stdout

    def write(self, text: str) -> int:
        output = self._output if threading.get_ident() == self._thread else sys.stderr
        return output.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


@contextmanager
def reserved_standard_output() -> Iterator[None]:
    """Send what libraries print to standard error: from their threads, and after the command until the process ends.

    Ray reports a lost machine from a thread of its own, or from this one when the process exits.
    """
    sys.stdout = output = _CommandOutput()  # passes on everything else that a stream has
    try:
        yield
    finally:
        if sys.stdout is output:  # else Click has wrapped it, because the reader of a pipe is gone
            output.flush()
            sys.stdout = sys.stderr
