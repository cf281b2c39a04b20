"""Limits on connections, which the routes cannot set: how many, how long a header may take, and how they end."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# A stop closes idle connections only after this time: a request may be on its way.
IDLE_SECONDS_AT_STOP = 0.5

BUSY = b'{"error": "the service has too many connections; try again later"}'
TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(BUSY), BUSY)
)


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol, which alone waits for the rest of a header forever and closes idle connections at once."""

    max_connections: int
    header_seconds: float
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Accept a connection, or refuse it where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.write(TOO_MANY)
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
