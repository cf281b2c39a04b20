"""Checks on every request before it reaches a route (its sender, its size, its time), and the form of every error.

A page of another site must not use a service on this machine. Its requests carry that site's Origin, which is
refused. A site that points its own name at this machine is refused by its Host, which must be an IP address,
localhost, or a name given at the start. There is no CORS.
"""

import asyncio
import hmac
import ipaddress
import json
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tallybox.errors import TallyboxError

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

# A body that is too large is read and discarded up to this many times the limit: a client that is cut off while it
# sends never reads the error.
DISCARD_UP_TO = 8

PHOTO_TYPE = "image/"  # of bodies of photos; others are JSON
HOST = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]{1,5})?", re.IGNORECASE)

NOT_JSON = {"json_invalid", "string_unicode"}  # the second: half of a surrogate pair


@dataclass(frozen=True)
class Limits:
    """Limits of one request, of all pending requests together, and of connections."""

    body_bytes: int = 16 * 2**20  # of a photo
    buffered_bytes: int = 256 * 2**20  # bodies of all requests that are being read or answered
    json_bytes: int = 4 * 2**20  # of a body of JSON; parsing it takes 0.2 s, in which no other request is answered
    image_pixels: int = 40_000_000
    images: int = 256  # of one request
    boxes: int = 20_000  # of one request to count
    explained_boxes: int = 100  # matrices grow with the square
    seconds: float = 30.0  # to send a request and to answer it
    pending: int = 2_000  # requests to count; more would wait longer than clients do
    header_seconds: float = 10.0  # to send the header of a request
    connections: int = 16_384  # more wait until others end


class Guard:
    """Checks Host, Origin, token and the announced size of the body, and ends requests that take too long."""

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None, hosts: Iterable[str]) -> None:
        self.app = app
        self.limits = limits
        self.token = token
        self.hosts = {host.lower() for host in hosts} | {"localhost"}
        self.buffered_bytes = 0  # announced by all requests that are being read or answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_started, is_read, reserved = False, False, 0

        async def receive_noted() -> Message:
            nonlocal is_read
            message = await receive()
            is_read |= not message.get("more_body", False)
            return message

        async def send_guarded(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                headers = [*message["headers"], *HEADERS]
                if not is_read and scope["method"] not in ("GET", "HEAD"):
                    # The server closes a connection whose body it did not read; a client must not use it again.
                    headers.append((b"connection", b"close"))
                message = {**message, "headers": headers}
            await send(message)

        try:
            async with asyncio.timeout(self.limits.seconds):
                request = Request(scope, receive_noted)
                self._check_sender(request)
                reserved = await self._reserve(request)
                await self.app(scope, receive_noted, send_guarded)
        except (HTTPException, TimeoutError) as error:
            late = HTTPException(408, f"The request took more than {self.limits.seconds:g} s.")
            problem = error if isinstance(error, HTTPException) else late
            if not is_started:
                await problem_answer(problem.status_code, problem.detail)(scope, receive, send_guarded)
        finally:
            self.buffered_bytes -= reserved

    async def _reserve(self, request: Request) -> int:
        """Return the announced size of a body, of which the server reads no more; raise if it is too large."""
        announced, limits = request.headers.get("content-length", "0"), self.limits
        if "transfer-encoding" in request.headers or not announced.isdecimal():
            raise HTTPException(400, "A request with a body needs a Content-Length.")
        length, is_photo = int(announced), content_type(request.scope).startswith(PHOTO_TYPE)
        max_bytes = limits.body_bytes if is_photo else limits.json_bytes
        if length > max_bytes:
            if length <= DISCARD_UP_TO * max_bytes:
                async for _ in request.stream():
                    pass
            raise HTTPException(413, f"A body must have at most {max_bytes:,} bytes.")
        if self.buffered_bytes + length > limits.buffered_bytes:
            raise HTTPException(429, "The service is busy with large requests; try again later.")
        self.buffered_bytes += length
        return length

    def _check_sender(self, request: Request) -> None:
        headers = request.headers
        host = headers.get("host", "")
        if not self._is_allowed(host):
            raise HTTPException(403, "Host must be an IP address, localhost or a name given with --allow-host.")
        if headers.get("origin", f"http://{host}").lower().partition("://")[2] != host.lower():
            raise HTTPException(403, "Origin must be this service.")
        if self.token is not None and request.scope["path"].startswith("/v1/"):
            authorization = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(authorization, b"Bearer " + self.token.encode()):
                raise HTTPException(401, "Authorization must be 'Bearer TOKEN' with the service's token.")

    def _is_allowed(self, host: str) -> bool:
        match = HOST.fullmatch(host)
        if match is None:
            return False
        name = (match["ipv6"] or match["name"]).lower().rstrip(".")
        with suppress(ValueError):
            return name in self.hosts or bool(ipaddress.ip_address(name))
        return False


def content_type(scope: Scope) -> str:
    """Return the media type of a request's body, without parameters."""
    return Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()


class ErrorAnswer(BaseModel):
    """The form of every error: a status and one line."""

    error: str


async def answer_problem(request: Request, problem: Exception) -> Response:
    """Answer any exception with an `ErrorAnswer`."""
    match problem:
        case HTTPException():
            return problem_answer(problem.status_code, problem.detail, problem.headers)
        case ClientDisconnect():
            return problem_answer(400, "The body is incomplete.")
        case TallyboxError():
            return problem_answer(422, str(problem))
        case RequestValidationError():
            first = problem.errors()[0]  # others often follow from it
            message = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"  # without the value
            status = 400 if first["type"] in NOT_JSON else 422
            return problem_answer(status, " ".join(message.split()))  # names of keys may contain line breaks
    logging.getLogger("tallybox.serve").error("%s %s failed", request.method, request.url.path, exc_info=problem)
    return problem_answer(500, "Internal error; see the log of the service.")


PROBLEMS = (HTTPException, ClientDisconnect, TallyboxError, RequestValidationError, Exception)


def problem_answer(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer in plain ASCII, so that no text of a request can break it."""
    headers = {"www-authenticate": "Bearer"} if status == 401 else headers
    return Response(json.dumps({"error": message}), status, headers, "application/json")
