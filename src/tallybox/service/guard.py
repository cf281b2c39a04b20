"""Checks on every request before it reaches a route: who may send it, how large it is, how long it takes. Plain ASGI.

A page on another site must not use a service on this machine. Its requests carry that site's Origin, which is
refused; and a site that points its own name at this machine is recognised by the Host, which must be an address,
localhost, or a name given at the start. There is no CORS.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from tallybox.service.limits import Limits, Refused

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]

# A body that is too large is read and thrown away up to so many times the limit: a client that is cut off while it
# sends never reads the error.
DISCARD_UP_TO = 8


class Guard:
    """Checks Host, Origin and token, reads the body within its limits, and ends what takes too long."""

    def __init__(self, app: App, limits: Limits, token: str | None, hosts: Iterable[str]) -> None:
        self.app = app
        self.limits = limits
        self.token = token
        self.hosts = {host.lower() for host in hosts} | {"localhost"}
        self.held = 0  # bytes of bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or say why not."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        body = b""
        try:
            self._check(scope)
            body = await self._body(scope, receive)
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, _replay(body, receive), send_guarded)
        except Refused as refused:
            await _refuse(send_guarded, refused)
        except TimeoutError:
            if not started:
                message = f"a request must be answered within {self.limits.seconds:g} s, but it was not; ask for less"
                await _refuse(send_guarded, Refused(408, message))
        finally:
            self.held -= len(body)

    def _check(self, scope: Scope) -> None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_known(host):
            raise Refused(
                403, "Host must be an address, localhost or a name given with --allow-host, but got another name"
            )
        origin = headers.get(b"origin")
        if origin is not None and _netloc(origin.decode("latin-1")) != host.lower():
            raise Refused(403, "Origin must be this service's own, but got another site's")
        if self.token is not None and scope["path"].startswith("/v1/"):
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
                raise Refused(401, "Authorization must be 'Bearer TOKEN' with the service's token, but it is not")

    def _is_known(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
            if name in self.hosts:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """Read the whole body; what is held of all requests together is bounded as well."""
        most = self.limits.body_bytes
        too_large = Refused(413, f"a body must have at most {most:,} bytes, but got more; ask for less at once")
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > DISCARD_UP_TO * most:
            raise too_large
        body = bytearray()
        seen = 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "a body must arrive whole, but the client left")
                    chunk = message.get("body", b"")
                    seen += len(chunk)
                    if seen > DISCARD_UP_TO * most:
                        raise too_large
                    if seen <= most:
                        if self.held + len(chunk) > self.limits.held_bytes:
                            raise Refused(429, "the service is busy with large requests; try again later")
                        self.held += len(chunk)
                        body += chunk
                    if not message.get("more_body", False):
                        break
            if seen > most:
                raise too_large
            if not content_type(scope).startswith("image/") and body.count(b",") > self.limits.json_values:
                raise Refused(413, f"a body must have at most {self.limits.json_values:,} values, but got more")
        except TimeoutError:
            self.held -= len(body)
            raise Refused(408, f"a request must arrive within {self.limits.seconds:g} s, but it did not") from None
        except Refused:
            self.held -= len(body)
            raise
        return bytes(body)


def content_type(scope: Scope) -> str:
    """Return the media type of a request's body, without parameters."""
    value: bytes = dict(scope["headers"]).get(b"content-type", b"")
    return value.decode("latin-1").partition(";")[0].strip().lower()


def _netloc(url: str) -> str | None:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:  # such as "http://[::1"
        return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the app the body that was read; after that, the server's own messages."""
    is_replayed = False

    async def replay() -> Message:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(send: Send, refused: Refused) -> None:
    content = json.dumps({"error": refused.message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
