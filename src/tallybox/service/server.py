"""Run the service: one process, one port, an orderly stop."""

from __future__ import annotations

import logging
import socket
import sys
import time
from collections.abc import Callable

import uvicorn

from tallybox.errors import InputError
from tallybox.service.api import ServiceSettings, create_app
from tallybox.service.connections import LimitedProtocol
from tallybox.service.guard import Message, Receive, Scope, Send

BACKLOG = 2048  # connections that wait to be accepted
KEEP_ALIVE_SECONDS = 30
OTHER_FILES = 64  # that the process has open besides connections
LOG_LINES = 20  # a minute; a flood of bad requests must not fill the disk


def serve(settings: ServiceSettings, host: str, port: int, *, on_start: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; then accept nothing new, and finish what was accepted.

    ``on_start`` is called with the address once connections are accepted; port 0 chooses a free one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise InputError(f"host and port must be free to listen on, but {host} port {port} is not: {error}") from None
    # Connections inherit it; without, the second part of an answer waits 40 ms for the client to confirm the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    limits = settings.limits

    class Protocol(LimitedProtocol):
        max_connections = allowed_connections(limits.connections)
        header_seconds = limits.header_seconds

    app = create_app(settings)

    async def stopping_app(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, _close_when(lambda: server.should_exit, send))

    config = uvicorn.Config(
        stopping_app,
        http=Protocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(2 * limits.seconds) + 5,
    )
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(RateLimit(LOG_LINES))
    server = AnnouncingServer(config, lambda: on_start(address))
    with listening:
        server.run(sockets=[listening])


class AnnouncingServer(uvicorn.Server):
    """A server that calls ``on_start`` once it accepts connections and handles signals."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and announce it."""
        await super().startup(sockets=sockets)
        if not self.should_exit:
            self._on_start()


class RateLimit(logging.Filter):
    """Lets so many records pass in a minute."""

    def __init__(self, records: int) -> None:
        super().__init__()
        self.records = records
        self.passed = 0
        self.minute = -1

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record passes."""
        minute = int(time.monotonic() // 60)
        if minute != self.minute:
            self.minute, self.passed = minute, 0
        self.passed += 1
        return self.passed <= self.records


def allowed_connections(wanted: int) -> int:
    """Return how many connections the limit on open files leaves, after raising it as far as the system allows."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft - OTHER_FILES))


def _close_when(is_stopping: Callable[[], bool], send: Send) -> Send:
    """Ask clients to close their connections once the server stops."""

    async def send_closing(message: Message) -> None:
        if message["type"] == "http.response.start" and is_stopping():
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return send_closing
