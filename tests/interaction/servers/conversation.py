"""The scripted server's side of the protocol, whatever the transport."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.interaction import text
from tests.interaction.servers import catalog
from tests.interaction.servers.options import Options
from tests.interaction.servers.record import Record

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"


class Refusal(Exception):  # reads as what it is
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str, data: bytes | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Channel(Protocol):
    """Where the messages that belong to one request go."""

    headers: dict[str, str]

    def send(self, raw: bytes) -> None:
        """Send one message."""

    def write(self, raw: bytes) -> None:
        """Send bytes as they are; only a pipe can."""

    def trick(self, kind: str, reply: bytes) -> None:
        """Send an answer in the named form; it is sent plainly afterwards, in case that nobody could read it."""

    def fault(self, kind: str) -> None:
        """Break the transport in the named way; only HTTP can."""


@dataclass(eq=False)
class Peer:
    """One client's connection: a pipe, an HTTP session, or one modern HTTP request."""

    announce: Callable[[bytes], None]
    initialized: bool = False
    count: int = 0
    log_level: str | None = None
    subscriptions: set[str] = field(default_factory=set)
    running: dict[bytes, "asyncio.Task[None]"] = field(default_factory=dict)
    questions: dict[bytes, "asyncio.Future[dict[str, bytes]]"] = field(default_factory=dict)
    asked: int = 0


class Gate:
    """Opens when as many calls as it was made for have entered."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entered = 0
        self.full = asyncio.Event()

    def enter(self) -> int:
        """Come in; which number one is."""
        self._entered += 1
        if self._entered == self._size:
            self.full.set()
        return self._entered


@dataclass(eq=False)
class Exchange:
    """One request and what is needed to answer it."""

    conversation: "Conversation"
    peer: Peer
    channel: Channel
    id: bytes
    method: str
    raw_params: bytes
    modern: bool

    @property
    def params(self) -> dict[str, bytes]:
        """The members of the params, each as it was written."""
        return text.members(self.raw_params)

    @property
    def meta(self) -> dict[str, Any]:
        """The params' `_meta`, decoded."""
        found: dict[str, Any] = text.value(self.params.get("_meta", b"{}"))
        return found

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification that belongs to this request."""
        self.channel.send(text.notification(method, params))

    async def ask(self, method: str, params: Any = None) -> dict[str, bytes]:
        """Ask the client something and return the members of its response."""
        self.peer.asked += 1
        identifier = text.dump(f"q{self.peer.asked}" if self.peer.asked % 2 else self.peer.asked)
        self.peer.questions[identifier] = answer = asyncio.get_running_loop().create_future()
        self.channel.send(text.request(identifier, method, params))
        return await answer


Handler = Callable[[Exchange], Awaitable[bytes]]


@dataclass(eq=False)
class Listener:
    """An open `subscriptions/listen`."""

    exchange: Exchange
    wanted: dict[str, Any]

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a change event, stamped with the subscription."""
        self.exchange.notify(method, {**params, "_meta": {META_SUBSCRIPTION: text.value(self.exchange.id)}})


class Conversation:
    """Answers messages; one for all clients of a server process."""

    def __init__(self, options: Options, record: Record) -> None:
        from tests.interaction.servers.methods import HANDSHAKE, MODERN

        self.options = options
        self.record = record
        self.peers: set[Peer] = set()
        self.listeners: list[Listener] = []
        self.barriers: dict[str, Gate] = {}
        self.tools = options.tools.split(",") if options.tools else list(catalog.NAMES)
        self.tools += [f"tool_{number:05}" for number in range(options.many_tools)]
        self._methods: dict[bool, dict[str, Handler]] = {False: HANDSHAKE, True: MODERN}

    async def receive(self, raw: bytes, peer: Peer, channel: Channel) -> None:
        """Take in one message and, when it is a request, answer it on its channel."""
        self.record.received(raw, channel.headers)
        try:
            parts = text.members(raw)
        except text.Malformed:
            is_batch = raw.lstrip()[:1] == b"["
            channel.send(text.failure(None, -32600 if is_batch else -32700, "not a message"))
            return
        if "method" not in parts:
            if (question := peer.questions.pop(parts.get("id", b""), None)) and not question.done():
                question.set_result(parts)
        elif "id" not in parts:
            self._note(text.value(parts["method"]), parts.get("params", b"{}"), peer)
        else:
            method = text.value(parts["method"])
            params = parts.get("params", b"{}")
            modern = META_VERSION in text.value(text.members(params).get("_meta", b"{}"))
            exchange = Exchange(self, peer, channel, parts["id"], method, params, modern)
            if task := asyncio.current_task():
                peer.running[parts["id"]] = task
            try:
                await self._answer(exchange)
            except asyncio.CancelledError:
                self.record.event("cancelled", id=exchange.id.decode("latin-1"), method=method)
                raise
            finally:
                peer.running.pop(exchange.id, None)

    def announce(self, method: str, params: dict[str, Any], wanted: str) -> None:
        """Tell everyone who wants to know that something changed."""
        for peer in list(self.peers):
            uri = params.get("uri")
            if peer.initialized and (uri is None or uri in peer.subscriptions):
                peer.announce(text.notification(method, params))
        for listener in self.listeners:
            filters = listener.wanted.get(wanted)
            if filters is True or (isinstance(filters, list) and params.get("uri") in filters):
                listener.notify(method, params)

    def _note(self, method: str, params: bytes, peer: Peer) -> None:
        if method == "notifications/initialized":
            peer.announce(text.notification("notifications/vendor/hello", b'{"n":1.0}'))
        elif method == "notifications/cancelled" and (
            task := peer.running.get(text.members(params).get("requestId", b""))
        ):
            task.cancel()

    async def _answer(self, exchange: Exchange) -> None:
        options = self.options
        if exchange.method in options.hang_at.split(","):
            await asyncio.Event().wait()
        for each in filter(None, options.ask_at.split(",")):
            method, question = each.split("=")
            if exchange.method == method:
                await exchange.ask(question)
        try:
            self._check_era(exchange)
            result = await self._handler(exchange)(exchange)
        except Refusal as refusal:
            exchange.channel.send(text.failure(exchange.id, refusal.code, str(refusal), refusal.data))
            return
        if exchange.modern and "resultType" not in text.members(result):
            result = text.merged(b'{"resultType":"complete"}', result)
        reply = b'{"jsonrpc":"2.0","id":' + exchange.id + b',"result":' + result + b"}"
        if exchange.method == "tools/list" and "trick" in exchange.params:
            exchange.channel.trick(text.value(exchange.params["trick"]), reply)
        exchange.channel.send(reply)

    def _handler(self, exchange: Exchange) -> Handler:
        methods = self._methods[exchange.modern]
        if handler := methods.get(exchange.method):
            return handler
        if exchange.method.startswith(("vendor/", "tasks/")):
            return methods["vendor/*"]
        raise Refusal(-32601, f"Method not found: {exchange.method}")

    def _check_era(self, exchange: Exchange) -> None:
        if exchange.modern:
            if not self.options.modern:
                raise Refusal(-32601, f"Method not found: {exchange.method}")
            version = exchange.meta[META_VERSION]
            if version != MODERN_VERSION:
                raise _unsupported([MODERN_VERSION], version)
        elif not self.options.handshake:
            raise _unsupported([MODERN_VERSION], "none")
        elif not exchange.peer.initialized and exchange.method not in ("initialize", "ping"):
            raise Refusal(-32600, "Received a request before initialize")


def _unsupported(supported: list[str], requested: str) -> Refusal:
    data = text.dump({"supported": supported, "requested": requested})
    return Refusal(-32022, "Unsupported protocol version", data)
