"""An HTTP client that shows every byte and event, leaves when it likes, and reads only when it is told to."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple, TypeVar

from riglm.adapters.mcp.wire.event_stream import Event, EventParser
from tests.waiting import WAIT_SECONDS

T = TypeVar("T")
PATIENCE = WAIT_SECONDS
BOTH = "application/json, text/event-stream"
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


async def within(waiting, seconds: float = PATIENCE):
    async with asyncio.timeout(seconds):
        return await waiting


class Whole(NamedTuple):
    """A response that came to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Event]:
        found: list[Event] = []
        EventParser(found.append, 1 << 30).feed(self.body)
        return found


class Response:
    """A response as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._events: list[Event] = []
        self._parser = EventParser(self._events.append, 1 << 30)
        self.status = 0
        self.headers: dict[str, str] = {}

    async def head(self) -> "Response":
        raw = await within(self._reader.readuntil(b"\r\n\r\n"))
        first, *rest = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        return self

    async def chunks(self) -> AsyncIterator[bytes]:
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int((await self._reader.readuntil(b"\r\n")).strip(), 16):
                yield await self._reader.readexactly(size)
                await self._reader.readexactly(2)
            await self._reader.readexactly(2)
        elif length := int(self.headers.get("content-length", "0")):
            yield await self._reader.readexactly(length)

    async def whole(self) -> Whole:
        return Whole(self.status, self.headers, await within(self._gather()))

    async def _gather(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def event(self) -> Event:
        """The next event of a chunked stream."""

        async def following() -> Event:
            while not self._events:
                size = int((await self._reader.readuntil(b"\r\n")).strip(), 16)
                assert size, "the stream ended"
                self._parser.feed(await self._reader.readexactly(size))
                await self._reader.readexactly(2)
            return self._events.pop(0)

        return await within(following())

    async def broken(self) -> bytes:
        """All that comes until the connection breaks."""
        with contextlib.suppress(ConnectionError):
            return await within(self._reader.read(-1))
        return b""


class Peer:
    """One connection to riglm."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self.reader = reader
        self.writer = writer
        self.host = host
        self.session = ""
        self.version = "2025-11-25"

    async def send(
        self,
        method: str = "POST",
        body: bytes | None = None,
        *,
        path: str = "/mcp",
        headers: Mapping[str, str | None] = {},
    ) -> Response:
        """Send a request and wait for the head of its response; headers of None are left out."""
        await self.write(method, body, path=path, headers=headers)
        return await Response(self.reader, self.writer).head()

    async def write(
        self,
        method: str = "POST",
        body: bytes | None = None,
        *,
        path: str = "/mcp",
        headers: Mapping[str, str | None] = {},
    ) -> None:
        own: dict[str, str | None] = {"host": self.host, "accept": BOTH}
        if body is not None:
            own |= {"content-type": "application/json", "content-length": str(len(body))}
        if self.session:
            own |= {"mcp-session-id": self.session, "mcp-protocol-version": self.version}
        own |= headers
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items() if value is not None)]
        self.writer.write("\r\n".join((*lines, "", "")).encode("latin-1") + (body or b""))
        await within(self.writer.drain())

    async def ask(
        self, method: str, params: Any = None, *, key: Any = 1, headers: Mapping[str, str | None] = {}
    ) -> Response:
        """POST a request."""
        return await self.send("POST", request(method, params, key), headers=headers)

    async def ask_modern(
        self, method: str, params: Any = None, *, key: Any = 1, headers: Mapping[str, str | None] = {}
    ) -> Response:
        """POST a request of the modern era."""
        given = {**(params or {}), "_meta": META}
        own = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-session-id": None}
        return await self.send("POST", request(method, given, key), headers={**own, **headers})

    async def notify(self, method: str, params: Any = None) -> Whole:
        """POST a notification."""
        body = json.dumps({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}).encode()
        return await (await self.send("POST", body)).whole()

    async def greet(self) -> Whole:
        """Open a session, and remember it."""
        params = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        answer = await (await self.ask("initialize", params, key="greeting")).whole()
        self.session = answer.headers.get("mcp-session-id", "")
        return answer

    def leave(self) -> None:
        """Break the connection without a word."""
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await within(self.writer.wait_closed())


def request(method: str, params: Any = None, key: Any = 1) -> bytes:
    """A JSON-RPC request."""
    return json.dumps({"jsonrpc": "2.0", "id": key, "method": method, "params": params or {}}).encode()
