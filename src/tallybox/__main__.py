"""The `tallybox` command's entry point, which also says what to install when the command line is missing."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from tallybox.cli import cli
        from tallybox.cli.standard_output import reserved_standard_output
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit(f"tallybox: the command line needs {error.name}; install it with: pip install 'tallybox[cli]'")
    with reserved_standard_output():
        cli(prog_name="tallybox")


if __name__ == "__main__":
    main()
