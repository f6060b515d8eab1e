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

from riglm.adapters.control import configuration, health, overrides, sessions, statistics
from riglm.adapters.control.dashboard.files import page_routes
from riglm.adapters.control.health import MetricsSource
from riglm.adapters.control.overrides import SHAPES_OF_WISHES
from riglm.adapters.control.request import PROBLEM_TYPE, Access, problem
from riglm.adapters.control.tokens import Tokens
from riglm.domain.control import (
    ConflictError,
    ControlError,
    ControlUnavailableError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
)
from riglm.domain.schemas.downstream import ControlSettings
from riglm.ports.control import ControlPort

_log: Final = logging.getLogger("riglm.control")

_STATUSES: Final[dict[type[ControlError], int]] = {
    NotFoundError: 404,
    ForbiddenError: 403,
    ConflictError: 409,
    ControlUnavailableError: 503,
}
_RETRY_SECONDS: Final = "2"
_DESCRIPTION: Final = (
    "Shows what a riglm does, and steers it. Times are RFC 3339 in UTC; questions take seconds since the epoch "
    "as well. Every error response is a problem document (RFC 9457)."
)
_TOKEN: Final = {"type": "http", "scheme": "bearer", "description": "`riglm control token` shows the tokens."}


def control_app(
    port: ControlPort, control: ControlSettings, tokens: Tokens, metrics: MetricsSource, *, version: str
) -> ASGIApp:
    """The API over `port`, behind its access checks; `version` is riglm's."""
    return Access(_HeadAsGet(api(port, metrics, version=version, guarded=tokens.required)), control, tokens)


def api(port: ControlPort, metrics: MetricsSource, *, version: str, guarded: bool) -> FastAPI:
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
    for part in (health, configuration, sessions, statistics, overrides):
        app.router.routes.extend(part.router.routes)
    app.openapi = cache(lambda: _document(app, guarded))  # type: ignore[method-assign]
    app.router.routes.extend(page_routes())
    return app


class _HeadAsGet:
    """Answers HEAD as GET, without the body, and ends what failed: it is answered and logged by then."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
            send = _without_body(send)
        with contextlib.suppress(Exception):
            await self._app(scope, receive, send)


def _without_body(send: Send) -> Send:
    async def sending(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return sending


def _document(app: FastAPI, guarded: bool) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes)
    components = document["components"]
    components["schemas"] |= configuration.parts_of_the_schema()
    components["securitySchemes"] = {"token": _TOKEN}
    document["security"] = [{"token": []}] if guarded else [{}, {"token": []}]
    for operations in document["paths"].values():
        for operation in operations.values():
            _as_problems(operation["responses"])
            for parameter in operation.get("parameters", ()):
                _without_null(parameter["schema"])
    return document


def _as_problems(responses: dict[str, Any]) -> None:
    """Give the answers that are problems the media type that they have."""
    for response in responses.values():
        content = response.get("content", {})
        if content.get("application/json", {}).get("schema", {}).get("$ref", "").endswith("/ProblemDetails"):
            response["content"] = {PROBLEM_TYPE: content["application/json"]}


def _without_null(schema: dict[str, Any]) -> None:
    """No parameter is null: it is left out."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        del schema["anyOf"]
        schema |= kinds[0]
    elif kinds:
        schema["anyOf"] = kinds


async def _not_usable(_: Request, error: RequestValidationError) -> Response:
    places = [(_place(each["loc"]), str(each["msg"])) for each in error.errors()]
    return problem(422, "; ".join(f"{path}: {words}" for path, words in places), errors=places)


def _place(location: Sequence[object]) -> str:
    """Where in a request something is wrong, as people who sent it know the place."""
    source, *path = location
    if source == "body" and path and path[0] in SHAPES_OF_WISHES:
        path = path[1:]
    return ".".join(map(str, path)) or "body"


async def _refused(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404:
        return problem(404, "there is no such path: see /openapi.json")
    if error.status_code == 405:
        allowed = ", ".join(_allowed(request))
        return problem(405, f"this takes {allowed} only", headers={"Allow": allowed})
    return problem(error.status_code, error.detail, headers=error.headers)


def _allowed(request: Request) -> list[str]:
    """The methods that the path of a request takes."""
    routes = request.app.routes
    methods = {
        method for route in routes if route.matches(request.scope)[0] is not Match.NONE for method in route.methods
    }
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


async def _failed(_: Request, error: ControlError) -> Response:
    if isinstance(error, InvalidInputError):
        return problem(422, str(error), errors=[(fault.path, fault.detail) for fault in error.faults])
    status = _STATUSES.get(type(error), 503)
    headers = {"Retry-After": _RETRY_SECONDS} if status == 503 else None
    return problem(status, str(error), headers=headers)


async def _broken(_: Request, error: Exception) -> Response:
    _log.error("the control API could not answer", exc_info=error)
    return problem(500, "riglm could not answer this; see its log")
