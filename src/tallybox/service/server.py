"""Run the service: one process, one port, limits on connections and headers, and an orderly stop."""

import asyncio
import socket
import sys
from collections.abc import Callable
from types import FrameType

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tallybox.errors import InputError
from tallybox.service.api import ServiceSettings, create_app
from tallybox.service.guard import Guard

BACKLOG = 2048  # connections that wait to be accepted
KEEP_ALIVE_SECONDS = 30
ACCEPTED_AT_ONCE = 32  # by asyncio, before the first of them can be refused
OTHER_FILES = 64 + 2 * ACCEPTED_AT_ONCE  # that the process may have open besides its connections
IDLE_SECONDS_AT_STOP = 0.5  # until a stop closes idle connections

REFUSAL = b'{"error": "the service has too many connections; try again later"}'
TOO_MANY_CONNECTIONS = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(REFUSAL), REFUSAL)
)


def serve(settings: ServiceSettings, host: str, port: int, *, on_start: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; then accept nothing new, and finish what was accepted.

    ``on_start`` is called with the address once connections are accepted; port 0 chooses a free one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        raise InputError(f"host and port must be free to listen on, but {host} port {port} is not: {error}") from None
    # Connections inherit it. Without it, the second part of an answer waits 40 ms until the client confirms the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    url_host = f"[{host}]" if ":" in host else host
    address = f"http://{url_host}:{listening.getsockname()[1]}"
    guard, limits = create_app(settings), settings.limits

    class Protocol(LimitedProtocol):
        max_connections = allowed_connections(limits.connections)
        header_seconds = limits.header_seconds

    config = uvicorn.Config(
        guard,
        http=Protocol,
        backlog=ACCEPTED_AT_ONCE,
        ws="none",
        log_level="error",  # a line for each malformed request would let anybody fill the disk
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(2 * limits.seconds) + 5,
    )
    with listening:
        GuardedServer(config, guard, lambda: on_start(address)).run(sockets=[listening])


class GuardedServer(uvicorn.Server):
    """A server that announces when it accepts connections and handles signals, and tells the guard when it stops."""

    def __init__(self, config: uvicorn.Config, guard: Guard, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._guard = guard
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and announce it."""
        await super().startup(sockets=sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)  # asyncio takes one number for the queue and for how many it accepts at once
        if not self.should_exit:
            self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop after a signal; answers from now on end their connections."""
        self._guard.is_stopping = True
        super().handle_exit(sig, frame)


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol with limits on connections and on the time for a header.

    At a stop, uvicorn's own closes idle connections at once; this one waits for a request that may be on its way.
    """

    max_connections: int
    header_seconds: float
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Accept a connection, or refuse it where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.write(TOO_MANY_CONNECTIONS)
            transport.close()
        else:
            self._time_header()

    def data_received(self, data: bytes) -> None:
        """Take part of a request."""
        super().data_received(data)
        self._time_header()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """End the connection after the answer to its request, an idle one after a moment."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(IDLE_SECONDS_AT_STOP, self._shutdown_now)
        else:
            super().shutdown()

    def _shutdown_now(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def _time_header(self) -> None:
        """Time a header from its beginning until it is complete."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def allowed_connections(connections: int) -> int:
    """Return how many connections the limit on open files leaves, after raising it as far as the system allows."""
    if sys.platform == "win32":
        return connections
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, soft - OTHER_FILES)
