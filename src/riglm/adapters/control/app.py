"""The control API as an ASGI application."""

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

from riglm.adapters.control import configuration, endpoints
from riglm.adapters.control.dashboard.files import page_routes
from riglm.adapters.control.request import PROBLEM_TYPE, Access, problem
from riglm.adapters.control.tokens import Tokens
from riglm.domain.control import (
    ConflictError,
    ControlError,
    ControlUnavailableError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
)
from riglm.domain.schemas.downstream import ControlSettings
from riglm.ports.control import ControlPort

_log: Final = logging.getLogger("riglm.control")

_STATUSES: Final[dict[type[ControlError], int]] = {
    NotFoundError: 404,
    ForbiddenError: 403,
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


def control_app(
    port: ControlPort, control: ControlSettings, tokens: Tokens, metrics: endpoints.MetricsSource, *, version: str
) -> ASGIApp:
    """The API over `port`, behind its access checks; `version` is riglm's."""
    return Access(_head_as_get(api(port, metrics, version=version, guarded=tokens.required)), control, tokens)


def api(port: ControlPort, metrics: endpoints.MetricsSource, *, version: str, guarded: bool) -> FastAPI:
    """Create the API without access checks; `guarded` makes its document declare that a token is needed."""
    app = FastAPI(
        title="riglm control API",
        version=version,
        description=_DESCRIPTION,
        docs_url=None,  # they would load from other hosts
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            RequestValidationError: _not_usable,
            HTTPException: _refused,
            ControlError: _failed,
            Exception: _broken,
        },
    )
    app.state.port = port
    app.state.metrics = metrics
    routers = (endpoints.HEALTH, endpoints.METRICS, configuration.router, *endpoints.USAGE)
    app.router.routes.extend(route for router in routers for route in router.routes)
    app.openapi = cache(lambda: _document(app, guarded))  # type: ignore[method-assign]
    app.router.routes.extend(page_routes())
    return app


def _head_as_get(app: ASGIApp) -> ASGIApp:
    """Answer HEAD as GET without the body. Errors of the application are logged and answered already."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_head(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        is_head = scope["method"] == "HEAD"
        with contextlib.suppress(Exception):
            await app({**scope, "method": "GET"} if is_head else scope, receive, send_head if is_head else send)

    return answer


def _document(app: FastAPI, guarded: bool) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes)
    components = document["components"]
    components["schemas"] |= configuration.parts_of_the_schema()
    components["securitySchemes"] = {"token": _TOKEN}
    document["security"] = [{"token": []}] if guarded else [{}, {"token": []}]
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


async def _not_usable(_: Request, error: RequestValidationError) -> Response:
    places = [(_place(each["loc"]), str(each["msg"])) for each in error.errors()]
    return problem(422, "; ".join(f"{path}: {words}" for path, words in places), errors=places)


def _place(location: Sequence[object]) -> str:
    """Where in a request something is wrong, as people who sent it know the place."""
    source, *path = location
    if source == "body" and path and path[0] in endpoints.OVERRIDE_MODELS:
        path = path[1:]
    return ".".join(map(str, path)) or "body"


async def _refused(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404:
        return problem(404, "there is no such path: see /openapi.json")
    if error.status_code == 405:
        matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        methods = {method for route in matching for method in route.methods}
        allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        return problem(405, f"this takes {allowed} only", headers={"Allow": allowed})
    return problem(error.status_code, error.detail, headers=error.headers)


async def _failed(_: Request, error: ControlError) -> Response:
    if isinstance(error, InvalidInputError):
        return problem(422, str(error), errors=[(fault.path, fault.detail) for fault in error.faults])
    status = _STATUSES.get(type(error), 503)
    headers = {"Retry-After": _RETRY_SECONDS} if status == 503 else None
    return problem(status, str(error), headers=headers)


async def _broken(_: Request, error: Exception) -> Response:
    _log.error("the control API could not answer", exc_info=error)
    return problem(500, "riglm could not answer this; see its log")
