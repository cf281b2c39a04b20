"""Run the service: one process, one port, and an orderly stop."""

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from tallybox.errors import InputError
from tallybox.service.api import ServiceSettings, create_app

BACKLOG = 2048  # connections that wait to be accepted
CLOSING_SECONDS = 0.5  # between the last answer and the end


def serve(settings: ServiceSettings, host: str, port: int, *, on_start: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; then accept nothing new, and answer the accepted requests.

    ``on_start`` is called with the address once connections are accepted; port 0 chooses a free one.
    """
    asyncio.run(_serve(settings, host, free_port(host, port), on_start))


async def _serve(settings: ServiceSettings, host: str, port: int, on_start: Callable[[str], None]) -> None:
    server = Server(
        create_app(settings),
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backlog=BACKLOG,
        backpressure=settings.limits.connections,
        http1_settings=HTTP1Settings(header_read_timeout=int(1000 * settings.limits.header_seconds)),
        log_enabled=False,  # a line for each malformed request would let anybody fill the disk
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # on Windows, where Ctrl-C raises KeyboardInterrupt
            loop.add_signal_handler(number, server.stop)
    announcing = asyncio.create_task(_announce(host, port, on_start))
    await server.serve()
    announcing.cancel()
    # granian closes idle connections in a thread. If Python ends before, it aborts (2.8, with 1,100 of them).
    await asyncio.sleep(CLOSING_SECONDS)


async def _announce(host: str, port: int, on_start: Callable[[str], None]) -> None:
    """Call ``on_start`` as soon as a connection is accepted."""
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            break
        await asyncio.sleep(0.01)
    on_start(f"http://{f'[{host}]' if ':' in host else host}:{port}")


def free_port(host: str, port: int) -> int:
    """Return the port, or a free one for 0; raise if it cannot be listened on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as listening:
            return int(listening.getsockname()[1])
    except (OSError, OverflowError) as error:
        raise InputError(f"Cannot listen on {host}, port {port}: {error}") from None
