"""Run the service: one process, one port, an orderly stop."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from tallybox.errors import InputError
from tallybox.explorer.service import ServiceSettings, create_app

BACKLOG = 2048  # connections that wait to be taken
KEEP_ALIVE_SECONDS = 30


def serve(settings: ServiceSettings, host: str, port: int, *, on_start: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; then take nothing new, and finish what was taken.

    ``on_start`` hears the address once connections are taken; port 0 chooses a free one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise InputError(f"host and port must be free to listen on, but {host} port {port} is not: {error}") from None
    # Connections inherit it; without, the second part of an answer waits 40 ms for the client to confirm the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        create_app(settings),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(2 * settings.limits.seconds) + 5,
    )
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    with listening:
        AnnouncingServer(config, lambda: on_start(address)).run(sockets=[listening])


class AnnouncingServer(uvicorn.Server):
    """A server that says when it takes connections, and signals: whoever hears of it earlier may stop it too early."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets=sockets)
        if not self.should_exit:
            self._on_start()
