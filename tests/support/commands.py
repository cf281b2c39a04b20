"""Commands, run in this process."""

from click.testing import CliRunner, Result

from tallybox.cli import cli


def run(*arguments: object) -> Result:
    """Run `tallybox` with arguments of any type."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])
