"""Every error of the service has one form: a status and ``{"error": "one line"}``."""

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from tallybox.errors import TallyboxError

DESCRIPTIONS = {
    400: "The request is not what it should be.",
    401: "The token is missing or wrong.",
    403: "The Host or the Origin is not this service's.",
    408: "The request, or its answer, took too long.",
    413: "The request is too large.",
    415: "The content type is not supported.",
    422: "A value is wrong; the answer says which.",
    429: "Too many requests wait.",
    503: "The service was started without what this needs.",
}
MAX_NAMED = 3  # problems of a body; the others are counted
NOT_JSON = {"json_invalid", "string_unicode"}  # the second: half of a surrogate pair


class ErrorAnswer(BaseModel):
    """Why there is no answer, in one line."""

    error: str


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems with which a route may answer."""
    return {status: {"model": ErrorAnswer, "description": DESCRIPTIONS[status]} for status in statuses}


async def answer_problem(request: Request, problem: Exception) -> Response:
    """Answer anything that goes wrong as an `ErrorAnswer`."""
    match problem:
        case HTTPException():
            return problem_answer(problem.status_code, problem.detail, problem.headers)
        case TallyboxError():
            return problem_answer(422, str(problem))
        case RequestValidationError():
            is_json = not any(error["type"] in NOT_JSON for error in problem.errors())
            return problem_answer(422 if is_json else 400, _summary(problem))
    logging.getLogger("tallybox.serve").error("%s %s failed", request.method, request.url.path, exc_info=problem)
    return problem_answer(500, "the service failed to answer; its log says why")


PROBLEMS: tuple[type[Exception], ...] = (HTTPException, TallyboxError, RequestValidationError, Exception)


def _summary(problem: RequestValidationError) -> str:
    """Say what is wrong and where, without repeating the values."""
    errors = problem.errors()
    problems = [f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}" for error in errors[:MAX_NAMED]]
    more = [f"and {len(errors) - MAX_NAMED} more"] if len(errors) > MAX_NAMED else []
    return " ".join("; ".join(problems + more).split())  # one line, whatever the names of keys hold


def problem_answer(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer in plain ASCII, so that no text of a request can break it."""
    headers = {"www-authenticate": "Bearer"} if status == 401 else headers
    return Response(json.dumps({"error": message}), status, headers, "application/json")
