"""A client that says exactly what it is told and keeps every byte that it hears."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Self

from tests.interaction import text
from tests.interaction.clients.link import Link
from tests.interaction.clients.message import Message
from tests.waiting import WAIT_SECONDS

HANDSHAKE = "handshake"
MODERN = "modern"
WITHIN = WAIT_SECONDS
"""How long, in seconds, a client waits for anything before the test fails."""

CAPABILITIES = (
    b'{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}},'
    b'"experimental":{"vendor/client":{"n":1.0}},"extensions":{"vendor/ext":{"v":1.50}}}'
)
IDENTITY = b'{"name":"raw","version":"1.0","vendorField":1.0}'

Answer = Callable[[Message], bytes]
"""Makes the result for a request of the server; raise Refuse for an error."""


class Refuse(Exception):  # reads as what it is
    """A client's error answer to a request of the server, as raw JSON."""

    def __init__(self, error: bytes) -> None:
        super().__init__(error)
        self.error = error


class Exchange:
    """A request on its way."""

    def __init__(self, client: "RawClient", identifier: bytes, params: bytes | None) -> None:
        self._client = client
        self.id = identifier
        self.params = params
        self.stream: object = None
        self.outcome: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    async def answer(self, within: float = WITHIN) -> Message:
        """The response; raises what ended its stream when there is none."""
        async with asyncio.timeout(within):
            return await asyncio.shield(self.outcome)

    async def cancel(self, reason: bytes = b'"changed \\u006dy mind"') -> None:
        """Give the request up in the way of the client's era and transport."""
        client = self._client
        if client.era == MODERN and await client.link.abandon(self.stream):
            return
        await client.notify("notifications/cancelled", b'{"requestId":%b,"reason":%b}' % (self.id, reason))


class RawClient:
    """Speaks one era over one link; use with `async with`."""

    def __init__(
        self, link: Link, era: str, *, answers: Mapping[str, Answer] | None = None, version: str | None = None
    ) -> None:
        self.link = link
        self.era = era
        self.version = version or ("2025-11-25" if era == HANDSHAKE else "2026-07-28")
        self.answers = dict(answers or {})
        self.greeting: Message | None = None
        self.notifications: list[Message] = []
        self.asked: list[Message] = []
        self.strays: list[bytes] = []
        self.called: Counter[str] = Counter()
        self._exchanges: dict[bytes, Exchange] = {}
        self._streams: dict[object, Exchange] = {}
        self._next_id = 0
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.link.open(self)
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave."""
        for task in self._tasks:
            task.cancel()
        for exchange in self._exchanges.values():
            if exchange.outcome.done() and not exchange.outcome.cancelled():
                exchange.outcome.exception()
        await self.link.close()

    async def greet(self) -> Message:
        """Open the conversation in the way of the era; the server's description of itself."""
        if self.era == HANDSHAKE:
            params = b'{"protocolVersion":"%b","capabilities":%b,"clientInfo":%b}'
            self.greeting = await self.request(
                "initialize", params % (self.version.encode(), CAPABILITIES, IDENTITY), within=40
            )
            if "result" in self.greeting.parts:
                await self.notify("notifications/initialized")
        else:
            self.greeting = await self.request("server/discover", within=40)
        return self.greeting

    async def start(self, method: str, params: Any = None, *, meta: Any = None, id: Any = None) -> Exchange:  # noqa: A002
        """Send a request; the envelope of the era is added."""
        if id is None:
            id, self._next_id = self._next_id, self._next_id + 1  # noqa: A001
        identifier = text.dump(id)
        whole = self.enveloped(params, meta)
        exchange = Exchange(self, identifier, None if whole is None else text.dump(whole))
        self._exchanges[identifier] = exchange
        exchange.stream = await self.link.send(text.request(identifier, method, exchange.params))
        self._streams[exchange.stream] = exchange
        return exchange

    async def request(
        self,
        method: str,
        params: Any = None,
        *,
        meta: Any = None,
        id: Any = None,  # noqa: A002
        within: float = WITHIN,
    ) -> Message:
        """Send a request and wait for its response."""
        return await (await self.start(method, params, meta=meta, id=id)).answer(within)

    async def call(self, tool: str, arguments: Any = None, **more: Any) -> Message:
        """Call a tool and wait for its result."""
        self.called[tool] += 1
        return await self.request("tools/call", self.call_params(tool, arguments), **more)

    async def start_call(self, tool: str, arguments: Any = None, **more: Any) -> Exchange:
        """Call a tool without waiting."""
        self.called[tool] += 1
        return await self.start("tools/call", self.call_params(tool, arguments), **more)

    async def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        await self.link.send(text.notification(method, params))

    async def wait_for(self, method: str, where: Callable[[Message], bool] | None = None, count: int = 1) -> Message:
        """The notification of this method (the `count`-th such), as soon as it is there."""
        async with asyncio.timeout(WITHIN):
            while (
                len(found := [m for m in self.notifications if m.method == method and (not where or where(m))]) < count
            ):
                self._changed.clear()
                await self._changed.wait()
        return found[count - 1]

    @staticmethod
    def call_params(tool: str, arguments: Any = None) -> bytes:
        """The params of a call, with the arguments byte for byte."""
        return b'{"name":%b,"arguments":%b}' % (text.dump(tool), text.dump(arguments if arguments is not None else {}))

    def enveloped(self, params: Any, meta: Any = None) -> Any:
        """The params with what the era wants in `_meta`."""
        if self.era == HANDSHAKE and meta is None:
            return params
        own = text.dump(meta if meta is not None else {})
        if self.era == MODERN:
            envelope = (
                b'{"io.modelcontextprotocol/protocolVersion":"%b","io.modelcontextprotocol/clientCapabilities":%b,'
                b'"io.modelcontextprotocol/clientInfo":%b}'
            ) % (self.version.encode(), CAPABILITIES, IDENTITY)
            own = text.merged(own, envelope)
        return text.merged(text.dump(params if params is not None else {}), b'{"_meta":' + own + b"}")

    def received(self, raw: bytes, stream: object) -> None:
        """Take in one message."""
        try:
            message = Message(raw, stream)
        except text.Malformed:
            self.strays.append(raw)
            return
        if message.method is None:
            exchange = self._exchanges.get(message.id or b"null")
            if exchange is None and getattr(stream, "whole", False):
                exchange = self._streams.get(stream)
            if exchange is None or exchange.outcome.done():
                self.strays.append(raw)
            else:
                exchange.outcome.set_result(message)
        elif message.id is not None:
            if not message.id.startswith(b'"riglm-roots:'):  # what riglm asks for itself is answered like any request
                self.asked.append(message)
            task = asyncio.create_task(self._answer(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self.notifications.append(message)
        self._changed.set()

    def stream_ended(self, stream: object, error: Exception) -> None:
        """Whoever still waits on this stream waits in vain."""
        for exchange in self._exchanges.values():
            if exchange.stream is stream and not exchange.outcome.done():
                exchange.outcome.set_exception(error)
                exchange.outcome.exception()

    async def _answer(self, message: Message) -> None:
        answer = self.answers.get(message.method or "")
        assert message.id is not None
        try:
            if answer is None:
                raise Refuse(b'{"code":-32601,"message":"no such thing"}')
            raw = text.response(message.id, answer(message))
        except Refuse as refusal:
            raw = b'{"jsonrpc":"2.0","id":' + message.id + b',"error":' + refusal.error + b"}"
        with suppress(ConnectionError):
            await self.link.send(raw)
