"""`tallybox serve`: the explorer page and the HTTP service."""

from pathlib import Path

import click

from tallybox.cli.options import estimator_option, source_options
from tallybox.cli.terminal import echo_line
from tallybox.errors import TallyboxError
from tallybox.files import import_optional


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 chooses a free one.")
@estimator_option
@source_options
@click.option("--token", envvar="TALLYBOX_TOKEN", help="Require this bearer token; TALLYBOX_TOKEN is safer.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A name the service may be called by.")
def serve(
    host: str,
    port: int,
    file: Path | None,
    detector: str | None,
    texts: tuple[str, ...],
    token: str | None,
    hosts: tuple[str, ...],
) -> None:
    """Serve the explorer page and the HTTP service until stopped (Ctrl-C).

    Only this machine can connect, unless --host says otherwise. The OpenAPI description is at /openapi.json.

    \b
    tallybox serve
    tallybox serve --estimator own.safetensors --detector onnx:own.onnx
    TALLYBOX_TOKEN=secret tallybox serve --host 0.0.0.0 --allow-host counts.example.org
    """  # noqa: D301 - click keeps the lines after a backspace as they are
    for package in ("fastapi", "granian"):
        import_optional(package, needed_for="serving", install="'tallybox[serve]'")
    from tallybox.estimator.estimator import CountEstimator
    from tallybox.photos.counter import PhotoCounter
    from tallybox.photos.detector import DEFAULT_SPEC
    from tallybox.photos.shipped import shipped_estimator
    from tallybox.service.api import ServiceSettings
    from tallybox.service.server import serve as run

    if token == "":
        raise TallyboxError("The token is empty; leave it out to serve without one.")
    if host not in ("127.0.0.1", "::1", "localhost") and token is None:
        echo_line(f"Warning: no token set; anyone who can reach {host} can use the service.", err=True)
    estimator = None if file is None else CountEstimator.load(file)
    try:
        import_optional("PIL", needed_for="counting photos", install="'tallybox[photos]'", package="pillow")
        counter = PhotoCounter(detector or DEFAULT_SPEC, estimator, texts=texts)
        settings = ServiceSettings(counter.estimator, counter.detector, token=token, hosts=hosts)
    except TallyboxError as error:
        if detector or texts:
            raise
        reason = f"This service does not count photos: {error}"
        echo_line(reason, err=True)
        settings = ServiceSettings(estimator or shipped_estimator(), token=token, hosts=hosts, no_detector=reason)
    run(settings, host, port, on_start=lambda at: echo_line(f"tallybox is at {at} (Ctrl-C stops)", err=True))
