"""How every operation takes a request: nothing in it is overlooked, and no body is waited for without end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIRouter
from starlette.exceptions import HTTPException

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


def operations(tag: str) -> APIRouter:
    """A group of operations, named as the functions are that answer."""
    return APIRouter(route_class=StrictRoute, tags=[tag], generate_unique_id_function=lambda route: route.name)


def _fault(name: str, known: set[str]) -> str:
    if name in known:
        return "it is given more than once"
    return f"there is no such parameter; there is {', '.join(sorted(known))}" if known else "there is no such parameter"
