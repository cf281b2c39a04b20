"""Checks on every request before it reaches a route: who may send it, how large it is, how long it takes.

A page on another site must not use a service on this machine. Its requests carry that site's Origin, which is
refused; and a site that points its own name at this machine is recognised by the Host, which must be an address,
localhost, or a name given at the start. There is no CORS.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tallybox.service.limits import Limits
from tallybox.service.problems import problem_answer

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

PHOTO_TYPES = ("image/", "multipart/form-data")  # bodies that carry photos; others are JSON


class Guard:
    """Checks Host, Origin and token, reads the body within its limits, and ends what takes too long."""

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None, hosts: Iterable[str]) -> None:
        self.app = app
        self.limits = limits
        self.token = token
        self.hosts = {host.lower() for host in hosts} | {"localhost"}
        self.held = 0  # bytes of bodies
        self.is_stopping = False  # then clients are asked to close their connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or say why not."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, is_started = bytearray(), False
        unread: list[Message] = []  # the whole body, for the app

        async def send_guarded(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                closing = [(b"connection", b"close")] if self.is_stopping else []
                message = {**message, "headers": [*message["headers"], *HEADERS, *closing]}
            await send(message)

        async def receive_again() -> Message:
            return unread.pop() if unread else await receive()

        try:
            request = Request(scope, receive)
            self._check_sender(request)
            await self.read_body(request, body)
            unread.append({"type": "http.request", "body": bytes(body), "more_body": False})
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, receive_again, send_guarded)
        except HTTPException as problem:
            await problem_answer(problem.status_code, problem.detail)(scope, receive, send_guarded)
        except ClientDisconnect:
            pass  # while it sent the body: nobody waits for an answer
        except TimeoutError:
            if not is_started:
                message = f"a request must be answered within {self.limits.seconds:g} s, but it was not; ask for less"
                await problem_answer(408, message)(scope, receive, send_guarded)
        finally:
            self.held -= len(body)

    def _check_sender(self, request: Request) -> None:
        headers = request.headers
        host = headers.get("host", "")
        if not self._is_allowed(host):
            allowed = "an address, localhost or a name given with --allow-host"
            raise HTTPException(403, f"Host must be {allowed}, but got another name")
        if not _is_origin_of(host, headers.get("origin")):
            raise HTTPException(403, "Origin must be this service's own, but got another site's")
        if self.token is not None and request.scope["path"].startswith("/v1/"):
            authorization = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(authorization, b"Bearer " + self.token.encode()):
                raise HTTPException(401, "Authorization must be 'Bearer TOKEN' with the service's token, but it is not")

    def _is_allowed(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
            return name in self.hosts or bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    async def read_body(self, request: Request, body: bytearray) -> None:
        """Read the whole body of a request; `held` counts what all requests together have read."""
        limits, max_bytes = self.limits, self.limits.body_bytes
        too_large = HTTPException(413, f"a body must have at most {max_bytes:,} bytes, but got more; ask for less")
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > DISCARD_UP_TO * max_bytes:
            raise too_large
        received = 0
        try:
            async with asyncio.timeout(limits.seconds):
                async for chunk in request.stream():
                    received += len(chunk)
                    if received > DISCARD_UP_TO * max_bytes:
                        raise too_large
                    if received <= max_bytes:
                        if self.held + len(chunk) > limits.held_bytes:
                            raise HTTPException(429, "the service is busy with large requests; try again later")
                        self.held += len(chunk)
                        body += chunk
        except TimeoutError:
            raise HTTPException(408, f"a request must arrive within {limits.seconds:g} s, but it did not") from None
        if received > max_bytes:
            raise too_large
        if not content_type(request.scope).startswith(PHOTO_TYPES) and body.count(b",") > limits.json_values:
            raise HTTPException(
                413, f"a body must have at most {limits.json_values:,} values, but got more; ask for less"
            )


def content_type(scope: Scope) -> str:
    """Return the media type of a request's body, without parameters."""
    return Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()


def _is_origin_of(host: str, origin: str | None) -> bool:
    try:
        return origin is None or urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # such as "http://[::1"
        return False
