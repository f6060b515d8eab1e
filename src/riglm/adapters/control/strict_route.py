"""Routes that refuse unknown and repeated parameters, and bodies that are large, slow or no strict JSON.

Error responses are problem documents (RFC 9457). The types of parameters that several operations take come last.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIRouter
from pydantic import BaseModel, BeforeValidator, Field
from starlette.exceptions import HTTPException

from riglm.application.control.running_proxy import RunningProxy
from riglm.domain.schemas.control_api import TimeParameter

PROBLEM_TYPE: Final = "application/problem+json"


class FieldErrorModel(BaseModel):
    """One invalid part of a request."""

    path: str = Field(description="The part: a parameter, a header, or the path of a key of the body.")
    detail: str = Field(description="What is wrong with it, and the fix.")


class ProblemDetails(BaseModel):
    """An error."""

    type: str = Field(default="about:blank", description="`about:blank`: see `status`.")
    title: str = Field(description="The status in words.")
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What is wrong, and the fix.")
    errors: list[FieldErrorModel] | None = Field(default=None, description="Each invalid part of the request.")


def create_problem(
    status: int, detail: str, *, errors: Sequence[tuple[str, str]] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response with this status; `errors` are paths with what is wrong there."""
    parts = [FieldErrorModel(path=path, detail=text) for path, text in errors]
    title = _TITLES.get(status) or HTTPStatus(status).phrase
    document = ProblemDetails(title=title, status=status, detail=detail, errors=parts or None)
    return Response(document.model_dump_json(exclude_none=True), status, headers, media_type=PROBLEM_TYPE)


def describe_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of problems with these statuses for the OpenAPI document."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        found[status] = {"model": ProblemDetails, "description": _DESCRIPTIONS[status]}
        if status in _HEADERS:
            name, description = _HEADERS[status]
            header = {"schema": {"type": "string"}, "required": True, "description": description}
            found[status]["headers"] = {name: header}
    return found


_TITLES: Final = {421: "Misdirected Request", 422: "Unprocessable Content"}  # as RFC 9110 has them; Python's are older
_HEADERS: Final = {401: ("WWW-Authenticate", "`Bearer`."), 503: ("Retry-After", "In seconds.")}
_DESCRIPTIONS: Final = {
    400: "The body is no JSON.",
    401: "A token is missing, or it is not a right one.",
    403: "The token is read-only, the request comes from a page of another origin, or this cannot be changed.",
    404: "What was named is not there.",
    408: "The body did not come in time.",
    409: "It conflicts with the current state.",
    412: "If-Match names no version of this configuration.",
    413: "The body is too large.",
    415: "The body is not declared to be JSON.",
    421: "The Host header names another server.",
    422: "A part of the request is not usable; `errors` says which.",
    503: "The answer was not ready in time, or the store is unavailable.",
}


MAX_BODY_BYTES: Final = 1 << 18
"""Maximum size of a request body."""

BODY_SECONDS: Final = 10.0
"""Seconds to wait for a request body."""


def create_router(tag: str, *statuses: int) -> APIRouter:
    """Return a router for operations that are named like their functions; all may return these error statuses."""
    return APIRouter(
        route_class=StrictRoute,
        tags=[tag],
        responses=describe_problems(401, 403, 421, 422, *statuses),
        generate_unique_id_function=lambda route: route.name,
    )


class StrictRoute(APIRoute):
    """An operation that refuses unknown and repeated query parameters."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return the operation behind these checks."""
        answer = super().get_route_handler()
        known = {field.alias for field in self.dependant.query_params}
        unknown = f"there is no such parameter; there is {', '.join(sorted(known)) or 'none'}"

        async def handle(request: Request) -> Response:
            given = [name for name, _ in request.query_params.multi_items()]
            wrong = {name: unknown for name in given if name not in known}
            wrong |= {name: "it is given more than once" for name in known if given.count(name) > 1}
            if wrong:
                faults = [{"type": "riglm", "loc": ("query", name), "msg": text} for name, text in wrong.items()]
                raise RequestValidationError(faults[:20])
            return await answer(JsonRequest(request.scope, request.receive))

        return handle


class JsonRequest(Request):
    """A request whose body must be strict JSON that is small and arrives in time."""

    async def body(self) -> bytes:
        """Return the body, read once."""
        if not hasattr(self, "_body"):
            if self.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise HTTPException(415, "send the body as JSON, with Content-Type: application/json")
            content = b""
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    async for part in self.stream():
                        content += part
                        if len(content) > MAX_BODY_BYTES:
                            raise HTTPException(413, f"send {MAX_BODY_BYTES} bytes at most", {"Connection": "close"})
            except TimeoutError:
                raise HTTPException(408, "the body did not come in time", {"Connection": "close"}) from None
            self._body = content
        return self._body

    async def json(self) -> Any:
        """Return the value; NaN, infinity and lone surrogates are refused."""
        try:
            return msgspec.json.decode(await self.body())
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise HTTPException(400, "the body is no JSON, or too deeply nested") from None


async def _get_proxy(request: Request) -> RunningProxy:
    proxy: RunningProxy = request.app.state.proxy
    return proxy


def _parse_flag(value: object) -> bool:
    if value not in ("true", "false", True, False):
        raise ValueError("write true or false")
    return value in ("true", True)


Proxy = Annotated[RunningProxy, Depends(_get_proxy)]
"""The proxy that the operation reads or changes."""

Flag = Annotated[bool, BeforeValidator(_parse_flag)]
"""A boolean, with one spelling."""

Since = Annotated[TimeParameter, Query(description="Only what happened since then.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")]
Cursor = Annotated[
    str | None,
    Query(max_length=512, pattern="^[A-Za-z0-9_=.:~-]+$", description="A `next_cursor`, to go on from there."),
]
