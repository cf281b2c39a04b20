"""The `tallybox` command's entry point, which also names the packages to install for the command line."""

import os
import sys


def main() -> None:
    """Run the command line; if its output cannot be written, print one line and exit with status 1."""
    try:
        from tallybox.cli import cli
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit(f"tallybox: the command line needs {error.name}; install it with: pip install 'tallybox[cli]'")
    try:
        try:
            cli(prog_name="tallybox")
        finally:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at its exit
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"Error: cannot write to standard output: {error.strerror}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
