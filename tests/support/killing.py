"""Commands in processes of their own, killed at a moment of choice."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable


def command(*arguments: object) -> list[str]:
    """Return a command of the package as a process runs it."""
    return [sys.executable, "-m", "tallybox", *(str(argument) for argument in arguments)]


def kill_when(arguments: list[str], reached: Callable[[], bool], *, limit_s: float = 60) -> None:
    """Run a command and kill it as soon as something is reached."""
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + limit_s
    while process.poll() is None and time.monotonic() < deadline:
        if reached():
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
            assert process.returncode == -signal.SIGKILL
            return
        time.sleep(0.0005)
    process.kill()
    printed, _ = process.communicate()
    raise AssertionError(f"it ended, or took {limit_s} s, before it could be killed: {printed.decode()}")
