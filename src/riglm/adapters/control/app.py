"""The control API as an ASGI application, behind checks of host, origin and token."""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from riglm.adapters.control.dashboard import CONTENT_SECURITY_POLICY, page_routes
from riglm.adapters.control.routes import PROBLEM_TYPE, ROUTERS, MetricsSource, create_problem
from riglm.adapters.control.tokens import Right, Tokens
from riglm.application.control.running_proxy import RunningProxy
from riglm.domain import errors
from riglm.domain.access import AllowedOrigins, CrossOrigin, bearer_token, is_origin_of
from riglm.domain.schemas.downstream import ControlSettings

_log: Final = logging.getLogger("riglm.control")

_STATUSES: Final[dict[type[errors.ControlError], int]] = {
    errors.NotFoundError: 404,
    errors.ConflictError: 409,
    errors.PreconditionError: 412,
    errors.ControlUnavailableError: 503,
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
    return Access(app, control, tokens)


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
            errors.ControlError: _report_failure,
            Exception: _report_defect,
        },
    )
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    app.openapi = cache(lambda: _describe(app, needs_token=needs_token))  # type: ignore[method-assign]
    app.router.routes.extend(page_routes())
    return app


def _describe(app: FastAPI, *, needs_token: bool) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes)
    components = document["components"]
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
    """Return the path of an invalid part of a request."""
    return ".".join(map(str, location[1:])) or "body"


async def _refuse(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404:
        return create_problem(404, "there is no such path: see /openapi.json")
    if error.status_code == 405:
        matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        methods = {method for route in matching for method in route.methods}
        allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        return create_problem(405, f"this takes {allowed} only", headers={"Allow": allowed})
    return create_problem(error.status_code, error.detail, headers=error.headers)


async def _report_failure(_: Request, error: errors.ControlError) -> Response:
    if isinstance(error, errors.InvalidInputError):
        return create_problem(422, str(error), errors=[(fault.path, fault.detail) for fault in error.faults])
    status = _STATUSES.get(type(error), 503)
    headers = {"Retry-After": _RETRY_SECONDS} if status == 503 else None
    return create_problem(status, str(error), headers=headers)


async def _report_defect(_: Request, error: Exception) -> Response:
    _log.error("the control API could not answer", exc_info=error)
    return create_problem(500, "riglm could not answer this; see its log")


ACCESS_HEADER: Final = b"riglm-access"
"""Response header with the right of an authorized caller: `read` or `write`."""

_READING: Final = frozenset({"GET", "HEAD"})
_GUARDS: Final = (b"host", b"origin", b"authorization")
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="riglm"'}
_SECURITY: Final = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Access:
    """Passes on requests for this listener from allowed origins with a valid token, and refuses others.

    The files of the dashboard contain no data and need no token, so that the page can ask for one.
    """

    def __init__(self, app: ASGIApp, control: ControlSettings, tokens: Tokens) -> None:
        self._app = app
        self._allowed_origins = AllowedOrigins(
            control.host, hosts=control.allowed_hosts, origins=control.allowed_origins
        )
        self._tokens = tokens
        self._cross_origin = CrossOrigin(
            control.allowed_origins,
            methods=b"GET, HEAD, POST, PUT, DELETE",
            sent=b"authorization, content-type, if-match",
            exposed=b"etag, location, retry-after, riglm-access, www-authenticate",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        names = [name for name, _ in scope["headers"]]
        twice = {name for name in _GUARDS if names.count(name) > 1}
        extra: list[tuple[bytes, bytes]] = [*_SECURITY, *self._cross_origin.grant(headers)]
        answer = self._refuse(scope, headers, twice, extra) or self._app
        method = "GET" if scope["method"] == "HEAD" else scope["method"]  # the server sends no body to HEAD
        with contextlib.suppress(Exception, asyncio.CancelledError):  # logged and answered already, or cut off
            await answer({**scope, "method": method}, receive, _add_headers(send, extra))

    def _refuse(
        self, scope: Scope, headers: dict[bytes, bytes], twice: set[bytes], extra: list[tuple[bytes, bytes]]
    ) -> Response | None:
        """Return the response to a request that goes no further; None for others."""
        origin, host = (headers.get(name, b"").decode("latin-1") for name in (b"origin", b"host"))
        if b"host" in twice or not self._allowed_origins.knows_host(host):
            return create_problem(
                421, "the Host header names another server: add it to control.allowed_hosts if it is yours"
            )
        is_known = self._allowed_origins.knows_origin(origin) or is_origin_of(origin, host)
        if b"origin" in headers and (b"origin" in twice or not is_known):
            return create_problem(
                403, "the request comes from a page of another origin: add it to control.allowed_origins if it is yours"
            )
        if granted := self._cross_origin.preflight(scope["method"], headers):
            extra += granted
            return Response(status_code=204)
        right = None if b"authorization" in twice else self._find_right(scope, headers)
        if right is None:
            return create_problem(401, "send a token that is right, as Authorization: Bearer TOKEN", headers=_CHALLENGE)
        if right < Right.WRITE and scope["method"] not in _READING:
            return create_problem(403, "this token is one to look with: take the one for changes")
        extra.append((ACCESS_HEADER, right.name.lower().encode()))
        return None

    def _find_right(self, scope: Scope, headers: dict[bytes, bytes]) -> Right | None:
        given = headers.get(b"authorization")
        if given is not None:
            token = bearer_token(given)
            return None if token is None else self._tokens.right(token)
        if not self._tokens.required:
            return Right.WRITE
        path: str = scope["path"]
        is_page = scope["method"] in _READING and (path == "/" or path.startswith("/assets/"))
        return Right.READ if is_page else None


def _add_headers(send: Send, extra: Iterable[tuple[bytes, bytes]]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            message = {**message, "headers": [*given, *(pair for pair in extra if pair[0] not in names)]}
            if b"cache-control" not in names:
                message["headers"].append((b"cache-control", b"no-store"))
        await send(message)

    return send_with_headers
