"""`tallybox serve`: the explorer page and the HTTP service."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tallybox.cli.options import estimator_option, source_options
from tallybox.cli.terminal import echo_line
from tallybox.errors import TallyboxError
from tallybox.files import import_optional

if TYPE_CHECKING:
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.photos.detector import Detector

LOCAL = ("127.0.0.1", "::1", "localhost")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 chooses a free one.")
@estimator_option
@source_options
@click.option("--token", envvar="TALLYBOX_TOKEN", help="Require this bearer token; TALLYBOX_TOKEN is safer.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A name the service may be called by.")
@click.option(
    "--images-at-once", type=click.IntRange(1), help="How many images are counted together at most.  [default: 256]"
)
def serve(
    host: str,
    port: int,
    file: Path | None,
    detector: str | None,
    texts: tuple[str, ...],
    token: str | None,
    hosts: tuple[str, ...],
    images_at_once: int | None,
) -> None:
    """Serve the explorer page and the HTTP service until stopped (Ctrl-C).

    The page is at /, the description of the service at /docs. Only this machine can connect unless --host says
    otherwise.
    """
    for package in ("fastapi", "uvicorn"):
        import_optional(package, needed_for="serving", install="'tallybox[serve]'")
    from tallybox.service.api import ServiceSettings
    from tallybox.service.server import serve as run

    if token == "":
        raise TallyboxError("a token must not be empty; leave it out to ask for none")
    if host not in LOCAL and token is None:
        echo_line(f"Anybody who reaches {host} may ask: no token was given.", err=True)
    settings = ServiceSettings(*_estimator_and_detector(file, detector, texts), token=token, hosts=hosts)
    if images_at_once is not None:
        settings = replace(settings, images_at_once=images_at_once)
    with suppress(KeyboardInterrupt):  # which uvicorn raises again after an orderly stop
        run(settings, host, port, on_start=lambda at: echo_line(f"tallybox is at {at} (Ctrl-C stops)", err=True))


def _estimator_and_detector(
    file: Path | None, spec: str | None, texts: Sequence[str]
) -> tuple[CountEstimator, Detector | None]:
    """Return what counts and what detects; no detector where the embedded one is not installed or not the estimator's.

    Detections are counted all the same.
    """
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.photos.counter import PhotoCounter
    from tallybox.photos.shipped import shipped_estimator
    from tallybox.photos.specs import DEFAULT_SPEC

    estimator = None if file is None else CountEstimator.load(file)
    try:
        import_optional("PIL", needed_for="counting photos", install="'tallybox[photos]'", package="pillow")
        counter = PhotoCounter(spec or DEFAULT_SPEC, estimator, texts=texts)
        return counter.estimator, counter.detector
    except TallyboxError as error:
        if spec or texts:
            raise
        echo_line(f"Photos are not counted: {error}", err=True)
        return estimator or shipped_estimator(), None
