"""Every error of the service has the same form: a status and ``{"error": "one line"}``."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from tallybox.errors import TallyboxError

NOT_JSON = {"json_invalid", "string_unicode"}  # the second: half of a surrogate pair


class ErrorAnswer(BaseModel):
    """An error in one line."""

    error: str


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors of a route for the OpenAPI document."""
    return {status: {"model": ErrorAnswer, "description": HTTPStatus(status).phrase} for status in statuses}


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
