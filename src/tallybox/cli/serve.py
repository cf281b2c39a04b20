"""`tallybox serve`: the explorer page and the HTTP service."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tallybox.cli.options import estimator_option
from tallybox.cli.terminal import echo_line
from tallybox.errors import TallyboxError
from tallybox.files import import_optional

if TYPE_CHECKING:
    from tallybox.photos.detector import Detector

LOCAL = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 chooses a free one.")
@estimator_option
@click.option("--token", envvar="TALLYBOX_TOKEN", help="Require this bearer token; TALLYBOX_TOKEN is safer.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A name the service may be called by.")
@click.option(
    "--images-at-once", type=click.IntRange(1), help="How many images are counted together at most.  [default: 256]"
)
def serve(
    host: str, port: int, file: Path | None, token: str | None, hosts: tuple[str, ...], images_at_once: int | None
) -> None:
    """Serve the explorer page and the HTTP service until stopped (Ctrl-C).

    The page is at /, the description of the service at /docs. Only this machine can connect unless --host says
    otherwise.
    """
    for package in ("fastapi", "uvicorn"):
        import_optional(package, needed_for="serving", install="'tallybox[serve]'")
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.photos.shipped import shipped_estimator
    from tallybox.service.api import ServiceSettings
    from tallybox.service.server import serve as run

    if token == "":
        raise TallyboxError("a token must not be empty; leave it out to ask for none")
    if host not in LOCAL and token is None:
        echo_line(f"Anybody who reaches {host} may ask: no token was given.", err=True)
    settings = ServiceSettings(
        estimator=shipped_estimator() if file is None else CountEstimator.load(file),
        detector=_detector(),
        token=token,
        hosts=hosts,
    )
    if images_at_once is not None:
        settings = replace(settings, images_at_once=images_at_once)
    with suppress(KeyboardInterrupt):  # which uvicorn raises again after an orderly stop
        run(settings, host, port, on_start=lambda at: echo_line(f"tallybox is at {at} (Ctrl-C stops)", err=True))


def _detector() -> Detector | None:
    """Return the embedded detector, or None where it is not installed: detections are counted all the same."""
    from tallybox.photos.picodet import PicoDet

    try:
        import_optional("PIL", needed_for="counting photos", install="'tallybox[photos]'", package="pillow")
        return PicoDet()
    except TallyboxError as error:
        echo_line(f"Photos are not counted: {error}", err=True)
        return None
