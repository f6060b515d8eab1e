"""The control API as an ASGI application."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from riglm.adapters.control import configuration
from riglm.adapters.control.access import Access
from riglm.adapters.control.dashboard.files import page_routes
from riglm.adapters.control.problems import PROBLEM_TYPE, create_problem
from riglm.adapters.control.routes import ROUTERS, MetricsSource
from riglm.adapters.control.tokens import Tokens
from riglm.application.control.running_proxy import RunningProxy
from riglm.domain.control import (
    ConflictError,
    ControlError,
    ControlUnavailableError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
)
from riglm.domain.policy import OverrideScope
from riglm.domain.schemas.downstream import ControlSettings

_log: Final = logging.getLogger("riglm.control")

_STATUSES: Final[dict[type[ControlError], int]] = {
    NotFoundError: 404,
    ConflictError: 409,
    PreconditionError: 412,
    ControlUnavailableError: 503,
}
_RETRY_SECONDS: Final = "2"
_DESCRIPTION: Final = (
    "Shows what a riglm does, and steers it. Times are RFC 3339 in UTC; questions take seconds since the epoch "
    "as well. Every error response is a problem document (RFC 9457)."
)
_TOKEN: Final = {"type": "http", "scheme": "bearer", "description": "`riglm control token` shows the tokens."}


def create_app(
    proxy: RunningProxy, control: ControlSettings, tokens: Tokens, metrics: MetricsSource, *, version: str
) -> ASGIApp:
    """Return the control API of a proxy behind its access checks; `version` is riglm's."""
    app = create_api(version=version, needs_token=tokens.required)
    app.state.proxy = proxy
    app.state.metrics = metrics
    return Access(_head_as_get(app), control, tokens)


def create_api(*, version: str, needs_token: bool) -> FastAPI:
    """Return the API without access checks; `needs_token` makes its document declare that a token is needed."""
    app = FastAPI(
        title="riglm control API",
        version=version,
        description=_DESCRIPTION,
        docs_url=None,  # they would load from other hosts
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            RequestValidationError: _refuse_invalid,
            HTTPException: _refuse,
            ControlError: _report_failure,
            Exception: _report_defect,
        },
    )
    for router in (*ROUTERS, configuration.router):
        app.router.routes.extend(router.routes)
    app.openapi = cache(lambda: _describe(app, needs_token=needs_token))  # type: ignore[method-assign]
    app.router.routes.extend(page_routes())
    return app


def _head_as_get(app: ASGIApp) -> ASGIApp:
    """Answer HEAD as GET without the body.

    Errors of the application are logged and answered already; a request that is cut off at the end is none.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_head(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        is_head = scope["method"] == "HEAD"
        with contextlib.suppress(Exception, asyncio.CancelledError):
            await app({**scope, "method": "GET"} if is_head else scope, receive, send_head if is_head else send)

    return answer


def _describe(app: FastAPI, *, needs_token: bool) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes)
    components = document["components"]
    components["schemas"] |= configuration.parts_of_the_schema()
    components["securitySchemes"] = {"token": _TOKEN}
    document["security"] = [{"token": []}] if needs_token else [{}, {"token": []}]
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"] = dict(sorted(operation["responses"].items()))
            for response in operation["responses"].values():
                shown = response.get("content", {}).get("application/json", {})
                if shown.get("schema", {}).get("$ref", "").endswith("/ProblemDetails"):
                    response["content"] = {PROBLEM_TYPE: shown}
            for parameter in operation.get("parameters", ()):  # a parameter without a value is left out, not null
                schema = parameter["schema"]
                kinds = [kind for kind in schema.pop("anyOf", ()) if kind != {"type": "null"}]
                schema |= kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}
    return document


async def _refuse_invalid(_: Request, error: RequestValidationError) -> Response:
    places = [(_place(each["loc"]), str(each["msg"])) for each in error.errors()]
    return create_problem(422, "; ".join(f"{path}: {words}" for path, words in places), errors=places)


def _place(location: Sequence[object]) -> str:
    """Return the path of an invalid part of a request, without the model that an override was validated as."""
    source, *path = location
    if source == "body" and path and path[0] in set(OverrideScope):
        path = path[1:]
    return ".".join(map(str, path)) or "body"


async def _refuse(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404:
        return create_problem(404, "there is no such path: see /openapi.json")
    if error.status_code == 405:
        matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        methods = {method for route in matching for method in route.methods}
        allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        return create_problem(405, f"this takes {allowed} only", headers={"Allow": allowed})
    return create_problem(error.status_code, error.detail, headers=error.headers)


async def _report_failure(_: Request, error: ControlError) -> Response:
    if isinstance(error, InvalidInputError):
        return create_problem(422, str(error), errors=[(fault.path, fault.detail) for fault in error.faults])
    status = _STATUSES.get(type(error), 503)
    headers = {"Retry-After": _RETRY_SECONDS} if status == 503 else None
    return create_problem(status, str(error), headers=headers)


async def _report_defect(_: Request, error: Exception) -> Response:
    _log.error("the control API could not answer", exc_info=error)
    return create_problem(500, "riglm could not answer this; see its log")
