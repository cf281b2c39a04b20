"""Standard output carries a command's results and nothing else; if they cannot be written, that is an error."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tallybox.errors import TallyboxError


class _CommandOutput:
    """Standard output for the thread that created this; what other threads print goes to standard error."""

    def __init__(self) -> None:
        self._thread, self._output = threading.get_ident(), sys.stdout
        self.has_failed = False  # the command has then raised the error

    def write(self, text: str) -> int:
        output = self._output if threading.get_ident() == self._thread else sys.stderr
        with self._failures():
            return output.write(text)

    def flush(self) -> None:
        with self._failures():
            self._output.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise a full disk as a TallyboxError; Click ends the command if the reader of a pipe is gone."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            self.has_failed = True
            raise TallyboxError(f"standard output cannot be written: {error.strerror or error}") from error


@contextmanager
def reserved_standard_output() -> Iterator[None]:
    """Send what libraries print from other threads, or after the command has ended, to standard error.

    Ray reports a lost machine from a thread of its own, or from this one when the process exits.
    """
    sys.stdout = output = _CommandOutput()  # passes on everything else that a stream has
    try:
        yield
    finally:
        if sys.stdout is output:  # else Click has wrapped it, because the reader of a pipe is gone
            sys.stdout = sys.stderr
            _flush_last(output)


def _flush_last(output: _CommandOutput) -> None:
    """Flush the output; if that fails, print the error once and discard what Python would try to flush again."""
    was_reported = output.has_failed
    try:
        output.flush()
    except (TallyboxError, BrokenPipeError) as error:
        with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - not a path of the user's
            os.dup2(nowhere.fileno(), output.fileno())
        if isinstance(error, TallyboxError) and not was_reported:
            sys.stderr.write(f"Error: {error}\n")
        raise SystemExit(1) from None
