"""An HTTP request as MCP reads it."""

from collections.abc import Awaitable, Callable
from typing import Any

from riglm.domain.session import Transport
from riglm.ports.downstream import Caller

Receive = Callable[[], Awaitable[dict[str, Any]]]


class TooLarge(Exception):  # said of a body
    """The body is over the limit."""


class Request:
    """The parts of a request that decide what happens with it."""

    __slots__ = ("_receive", "caller", "headers", "method", "scope")

    def __init__(
        self,
        scope: dict[str, Any],
        receive: Receive,
        principal: str,
        handle_header: bytes,
        transport: Transport = Transport.HTTP,
    ) -> None:
        """A request of ASGI; of a repeated header the last one counts."""
        self.scope = scope
        self.method: str = scope["method"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._receive = receive
        client = scope.get("client")
        self.caller = Caller(
            transport=transport,
            principal=principal,
            address=client[0] if client else "",
            handle=self.headers.get(handle_header, b"").decode("latin-1"),
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
        return self.headers.get(b"content-type", b"").lower().startswith(b"application/json")

    def accepts(self, media_type: bytes) -> bool:
        """Whether the client takes this media type."""
        accept = self.headers.get(b"accept", b"").lower()
        return media_type in accept or b"*/*" in accept or media_type.split(b"/")[0] + b"/*" in accept

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
            TooLarge: it is longer than `limit` bytes.
        """
        announced = self.headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            raise TooLarge
        event = await self._receive()
        body: bytes = event.get("body", b"")
        if not event.get("more_body"):
            return body
        parts, size = [body], len(body)
        while event.get("more_body"):
            event = await self._receive()
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise TooLarge
        return b"".join(parts)

    async def gone(self) -> None:
        """Wait until the client left, or the answer was sent whole."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
