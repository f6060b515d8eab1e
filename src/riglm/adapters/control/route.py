"""Routes of the control API: strict parameters, bounded JSON bodies, and the types of parameters."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIRouter
from pydantic import BeforeValidator, WithJsonSchema
from starlette.exceptions import HTTPException

from riglm.adapters.control.request import error_responses
from riglm.domain.schemas.control_api import LATEST
from riglm.ports.control import ControlPort

MAX_BYTES: Final = 1 << 18
"""The largest body."""

_MAX_FAULTS: Final = 20

BODY_SECONDS: Final = 10.0
"""Seconds to wait for a request body."""

Handler = Callable[[Request], Awaitable[Response]]


class JsonRequest(Request):
    """A request whose body is small, quick and strict JSON, or refused."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            self._body = await self._gathered()
        return self._body

    async def json(self) -> Any:
        """What the body says; numbers that JSON does not have, and halves of characters, are no JSON."""
        try:
            return msgspec.json.decode(await self.body())
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise HTTPException(400, "the body is no JSON, or too deeply nested") from None

    async def _gathered(self) -> bytes:
        if self.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, "send the body as JSON, with Content-Type: application/json")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in self.stream():
                    size += len(part)
                    if size > MAX_BYTES:
                        raise HTTPException(413, f"send {MAX_BYTES} bytes at most", {"Connection": "close"})
                    parts.append(part)
        except TimeoutError:
            raise HTTPException(408, "the body did not come in time", {"Connection": "close"}) from None
        return b"".join(parts)


class StrictRoute(APIRoute):
    """An operation that refuses parameters which it does not know, or which are given twice."""

    def get_route_handler(self) -> Handler:  # type: ignore[override]
        """The operation, behind these checks."""
        answer = super().get_route_handler()
        known = {field.alias for field in self.dependant.query_params}

        async def handle(request: Request) -> Response:
            given = [name for name, _ in request.query_params.multi_items()]
            wrong = [
                {"type": "riglm", "loc": ("query", name), "msg": _fault(name, known), "input": None}
                for name in dict.fromkeys(given)
                if name not in known or given.count(name) > 1
            ]
            if wrong:
                raise RequestValidationError(wrong[:_MAX_FAULTS])
            return await answer(JsonRequest(request.scope, request.receive))

        return handle


def operations(tag: str, *statuses: int) -> APIRouter:
    """Return a router for operations that are named like their functions; all may return these error statuses."""
    return APIRouter(
        route_class=StrictRoute,
        tags=[tag],
        responses=error_responses(401, 403, 421, 422, *statuses),
        generate_unique_id_function=lambda route: route.name,
    )


def _fault(name: str, known: set[str]) -> str:
    if name in known:
        return "it is given more than once"
    return f"there is no such parameter; there is {', '.join(sorted(known))}" if known else "there is no such parameter"


PRINTED: Final = r"^[^\x00-\x1f\x7f-\x9f]+$"
"""The pattern of text without signs for control, which no tool's name has."""

_RFC_3339: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d):(\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,3})?", re.ASCII)
_HOW: Final = "write it as 2026-01-31T12:00:00Z, or in seconds since the epoch"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_TIME: Final = {"type": "string", "format": "date-time"}


def read(text: str) -> float:
    """A time in seconds since the epoch, from how RFC 3339 writes it, or from such seconds; what was before is 0.

    Raises:
        ValueError: it is neither.
    """
    return _seconds(float(text)) if _NUMBER.fullmatch(text) else _read_date(text)


def _read_member(value: object) -> float:
    if isinstance(value, str):
        return _read_date(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(_HOW)  # noqa: TRY004  # pydantic reports only these
    return _seconds(value)


def _seconds(value: float) -> float:
    if not 0 <= value <= LATEST:
        raise ValueError(f"it must lie between 0 and {LATEST} seconds since the epoch")
    return float(value)


def _read_date(text: str) -> float:
    found = _RFC_3339.fullmatch(text)
    if found is None:
        raise ValueError(_HOW)
    day, minutes, seconds, fraction, zone = found.groups()
    leap = seconds == "60"  # which Python does not know
    whole = f"{day}T{minutes}:{59 if leap else seconds}{(fraction or '')[:7]}{zone.upper()}"
    try:
        at = datetime.fromisoformat(whole)
    except ValueError:
        raise ValueError("there is no such time") from None
    return min(max((at - _EPOCH).total_seconds() + leap, 0.0), float(LATEST))


_MOMENT: Final = WithJsonSchema({"anyOf": [_DATE_TIME, {"type": "number", "minimum": 0, "maximum": LATEST}]})

GivenTime = Annotated[float, BeforeValidator(read), _MOMENT]
"""A time among the parameters: RFC 3339, or seconds since the epoch."""

TimeMember = Annotated[float, BeforeValidator(_read_member), _MOMENT]
"""A time in a body."""


def _read_flag(value: object) -> object:
    if value not in ("true", "false", True, False):
        raise ValueError("write true or false")
    return value in ("true", True)


Flag = Annotated[bool, BeforeValidator(_read_flag)]
"""A yes or no among the parameters."""

Since = Annotated[GivenTime, Query(description="Only what happened since then.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")]
Cursor = Annotated[
    str | None,
    Query(max_length=512, pattern="^[A-Za-z0-9_=.:~-]+$", description="A `next_cursor`, to go on from there."),
]


async def _port(request: Request) -> ControlPort:
    found: ControlPort = request.app.state.port
    return found


Port = Annotated[ControlPort, Depends(_port)]
"""What answers."""
