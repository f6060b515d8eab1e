"""An HTTP request as MCP reads it."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self

from riglm.adapters.mcp.wire.messages import ChunkBuffer
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller

Receive = Callable[[], Awaitable[dict[str, Any]]]

CUT: Final = "riglm.cut"
"""The ASGI extension under which riglm's server offers to break the connection."""

BODY_SECONDS: Final = 60.0
"""Seconds to wait for a request body."""

DISCARD_SECONDS: Final = 2.0
"""Seconds for which the rest of a refused body is read."""
_log = logging.getLogger("riglm.downstream")


class BodyError(Exception):
    """Raised when the body is over the limit or late, which is answered with `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ClientDisconnectedError(Exception):
    """Raised when the client left before its body was complete."""


class McpHttpRequest:
    """The parts of a request that decide what happens with it.

    `asked` is the raw id of the JSON-RPC request that it carries, once that was read.
    """

    __slots__ = ("_receive", "asked", "caller", "headers", "method", "scope")

    def __init__(self, scope: dict[str, Any], receive: Receive, handle_header: bytes) -> None:
        """A request of ASGI; of a repeated header the last one counts."""
        self.scope = scope
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.asked: bytes | None = None
        self._receive = receive
        client = scope.get("client")
        self.caller = Caller(
            transport=Transport.HTTP,
            address=client[0] if client else "",
            handle=self.headers.get(handle_header, b"").decode("latin-1"),
            connection=str(client[1]) if client else "",
        )

    @property
    def mcp_headers(self) -> dict[bytes, bytes]:
        """The client's `Mcp-*` headers without the session's id, surrounding blanks taken off."""
        return {
            name: value.strip(b" \t")
            for name, value in self.headers.items()
            if name[:4] == b"mcp-" and name != b"mcp-session-id"
        }

    @property
    def sends_json(self) -> bool:
        """Whether the body is said to be JSON."""
        return _media_type(self.headers.get(b"content-type", b"")) == b"application/json"

    def accepts(self, media_type: bytes) -> bool:
        """Whether the client takes this media type."""
        accepted = _accepted(self.headers.get(b"accept", b""))
        return media_type in accepted or b"*/*" in accepted or media_type.split(b"/")[0] + b"/*" in accepted

    def repeated(self, *names: bytes) -> bytes | None:
        """One of these headers that came more than once."""
        seen: set[bytes] = set()
        for name, _ in self.scope["headers"]:
            if name in seen:
                return name  # type: ignore[no-any-return]
            if name in names or name.startswith(b"mcp-param-"):
                seen.add(name)
        return None

    async def body(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            BodyError: it is longer than `limit` bytes, or took too long.
            ClientDisconnectedError: the client left before it was complete.
        """
        announced = self.headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced[:20]) > limit:
            raise _too_large(limit)
        body: ChunkBuffer | None = None
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while True:
                    event = await self._receive()
                    if event["type"] == "http.disconnect":
                        raise ClientDisconnectedError
                    piece: bytes = event.get("body", b"")
                    if len(piece) + (body.size if body is not None else 0) > limit:
                        raise _too_large(limit)
                    if not event.get("more_body", False):
                        return piece if body is None else body.take(piece)
                    body = body or ChunkBuffer()
                    body.add(piece)
        except TimeoutError:
            raise BodyError(408, "the body did not come in time") from None

    async def discard(self) -> None:
        """Take what is still coming for a moment, so that the client gets to read the answer instead of a reset."""
        try:
            async with asyncio.timeout(DISCARD_SECONDS):
                while True:
                    event = await self._receive()
                    if event["type"] == "http.disconnect" or not event.get("more_body"):
                        return
        except TimeoutError:
            return

    async def wait_disconnected(self) -> None:
        """Wait until the client left, or the answer was sent whole."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def cut(self) -> None:
        """Break the connection: the client let too much wait, or what it got must not pass for a whole answer."""
        _log.warning("cut a connection", extra={"path": self.scope["path"], "method": self.method})
        offered = (self.scope.get("extensions") or {}).get(CUT)
        if offered is not None:
            offered["cut"]()


class DisconnectWatcher:
    """Detects, within a `with` block, that the client left; then `is_disconnected` is True, and `left` is called, once.

    `after` is a delay in seconds before it looks: most answers are there sooner, and need no watch.
    """

    __slots__ = ("_after", "_left", "_request", "_task", "_timer", "is_disconnected")

    def __init__(self, request: McpHttpRequest, left: Callable[[], None], *, after: float = 0.0) -> None:
        self._request = request
        self._left = left
        self._after = after
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_disconnected = False

    def __enter__(self) -> Self:
        if self._after:
            self._timer = asyncio.get_running_loop().call_later(self._after, self._start)
        else:
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        await self._request.wait_disconnected()
        self.is_disconnected = True
        self._left()


def _too_large(limit: int) -> BodyError:
    return BodyError(413, f"the message is over the limit of {limit} bytes (`limits.request_bytes`)")


@functools.lru_cache(maxsize=64)
def _accepted(header: bytes) -> frozenset[bytes]:
    return frozenset(_media_type(part) for part in header.split(b","))


def _media_type(header: bytes) -> bytes:
    return header.partition(b";")[0].strip().lower()
