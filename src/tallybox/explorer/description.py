"""The service's own description (OpenAPI), and the one form in which every problem is answered."""

from __future__ import annotations

import json
import logging
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from tallybox.errors import TallyboxError
from tallybox.explorer.limits import Refused
from tallybox.explorer.schemas import CountRequest, ExplainRequest, Problem

PROBLEMS = {
    400: "The request is not what it should be.",
    401: "The token is missing or wrong.",
    403: "The Host or the Origin is not this service's.",
    408: "The request, or its answer, took too long.",
    413: "The request is too large.",
    415: "The content type is none that is read.",
    422: "A value is wrong; the answer says which.",
    429: "Too many requests wait.",
    503: "The service was started without what this needs.",
}
ALWAYS = (400, 401, 403, 408, 413, 429)

SAID_AT_MOST = 3  # of all that is wrong with a body


def answers(model: Any, *, asks: bool = True) -> dict[int | str, dict[str, Any]]:
    """Return the answers of a route: its model, and problems; ``asks``: it takes values that may be wrong."""
    possible = PROBLEMS if asks else {status: PROBLEMS[status] for status in ALWAYS}
    described: dict[int | str, dict[str, Any]] = {200: {"model": model, "description": "The answer."}}
    for status, said in possible.items():
        described[status] = {"model": Problem, "description": said}
    return described


def body_of(model: type[BaseModel], *binary: str) -> dict[str, Any]:
    """Describe the body of a route that reads it itself: JSON by a model, or bytes of other kinds."""
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}
    for kind in binary:
        content[kind] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


def describe(api: FastAPI) -> None:
    """Add the models of bodies that routes read themselves, and the token, to the description."""
    made = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            description = made()
            template = "#/components/schemas/{model}"
            _, models = models_json_schema(
                [(CountRequest, "validation"), (ExplainRequest, "validation")], ref_template=template
            )
            description["components"]["schemas"].update(models["$defs"])
            description["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            description["security"] = [{}, {"token": []}]
            api.openapi_schema = description
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]  # the way that FastAPI documents


def explain_problems(api: FastAPI) -> None:
    """Answer everything that goes wrong as a `Problem`."""

    @api.exception_handler(Refused)
    async def refused(request: Request, problem: Refused) -> Response:
        return _problem(problem.status, problem.said)

    @api.exception_handler(TallyboxError)
    async def wrong_value(request: Request, problem: TallyboxError) -> Response:
        return _problem(422, str(problem))

    @api.exception_handler(ValidationError)
    async def wrong_body(request: Request, problem: ValidationError) -> Response:
        errors = problem.errors(include_url=False, include_context=False, include_input=False)
        is_json = not any(error["type"] == "json_invalid" for error in errors)
        return _problem(422 if is_json else 400, _said(errors))

    @api.exception_handler(RequestValidationError)
    async def wrong_query(request: Request, problem: RequestValidationError) -> Response:
        return _problem(422, _said(problem.errors()))

    @api.exception_handler(HTTPException)
    async def by_the_framework(request: Request, problem: HTTPException) -> Response:
        return _problem(problem.status_code, str(problem.detail), problem.headers)

    @api.exception_handler(Exception)
    async def unexpected(request: Request, problem: Exception) -> Response:
        logging.getLogger("tallybox.serve").error("%s %s failed", request.method, request.url.path, exc_info=problem)
        return _problem(500, "the service failed to answer; its log says why")


def _said(errors: Any) -> str:
    """Say what is wrong and where, without repeating what came."""
    places = [f"{'.'.join(str(part) for part in error['loc']) or 'body'}: {error['msg']}" for error in errors]
    more = f"; and {len(places) - SAID_AT_MOST} more" if len(places) > SAID_AT_MOST else ""
    return "; ".join(places[:SAID_AT_MOST]) + more


def _problem(status: int, said: str, headers: Any = None) -> Response:
    return Response(json.dumps({"error": said}), status, headers, "application/json")
