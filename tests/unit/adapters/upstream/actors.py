"""Both ends of a link: clients that write down what they hear, and a channel whose other end a test speaks for."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from riglm.adapters.mcp.upstream.channel import MessageChannel, Receiver, report_unreadable
from riglm.adapters.mcp.upstream.deadlines import UpstreamTimeouts
from riglm.adapters.mcp.wire.messages import decode
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamRequest
from tests.waiting import WAIT_SECONDS, wait_until_async

PATIENCE = WAIT_SECONDS
SPEC = UpstreamSpec(name="server", kind="stdio", command=("server",))
QUICK = UpstreamTimeouts(connect=5, initialize=5, list=5, call=5, call_max=10, shutdown=1)

T = TypeVar("T")


async def within(waiting: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE):
        return await waiting


async def settle() -> None:
    """Let everything happen that needs no more than the loop."""
    for _ in range(10):
        await asyncio.sleep(0)


def request(message_id: object, method: str, params: object = None) -> Message:
    return jsonrpc.request(jsonrpc.encode(message_id), method, jsonrpc.encode({} if params is None else params))


def notification(method: str, params: object = None) -> Message:
    return jsonrpc.notification(method, b"" if params is None else jsonrpc.encode(params))


class Answer(UpstreamRequest):
    """A client's request, and how it ended; `over` is set when it did."""

    def __init__(self, message: Message, headers: Mapping[bytes, bytes] | None = None):
        self.message = message
        self.headers = headers or {}
        self.heard: list[Message] = []
        self.pauses: list[int] = []
        self.message_back: Message | None = None
        self.status = 0
        self.failure: tuple[ErrorKind, str] | None = None
        self.over = asyncio.Event()
        self.on_end: Callable[[], None] = lambda: None

    def related(self, message: Message) -> None:
        assert not self.over.is_set()
        self.heard.append(message)

    def paused(self, retry_ms: int) -> None:
        self.pauses.append(retry_ms)

    def replied(self, message: Message, status: int = 200) -> None:
        self.message_back, self.status = message, status
        self._end()

    def failed(self, kind: ErrorKind, words: str) -> None:
        self.failure = (kind, words)
        self._end()

    def _end(self) -> None:
        assert not self.over.is_set(), "a request ends once"
        self.over.set()
        self.on_end()

    @property
    def raw(self) -> dict[str, Any]:
        """The answer, decoded."""
        assert self.message_back is not None, self.failure
        found: dict[str, Any] = json.loads(self.message_back.line)
        return found

    async def result(self) -> Any:
        await within(self.over.wait())
        return self.raw["result"]

    async def error(self) -> Any:
        await within(self.over.wait())
        return self.raw["error"]

    async def words(self) -> str:
        """Why no answer came."""
        await within(self.over.wait())
        assert self.failure is not None, self.message_back
        return self.failure[1]


class Ears(ServerMessageHandler):
    """What a client hears that belongs to none of its requests."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.news = asyncio.Event()

    def unsolicited(self, link: UpstreamLink, message: Message) -> None:
        self.heard.append(message)
        self.news.set()

    @property
    def methods(self) -> list[str | None]:
        return [message.method for message in self.heard]


def ask(
    link: UpstreamLink, message_id: object, method: str, params: object = None, *, has_unique_id: bool = False
) -> Answer:
    """Send a request over a link."""
    answer = Answer(request(message_id, method, params))
    answer.has_unique_id = has_unique_id
    link.request(answer.message, answer)
    return answer


class Wire(MessageChannel):
    """A channel whose other end is the test."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.lines: list[dict[str, Any]] = []
        self.closed = 0
        self.refusal = ""
        self.failure: Exception | None = None

    def write(self, message: Message) -> None:
        if self.refusal:
            raise UpstreamUnavailableError(self.refusal)
        self.lines.append(json.loads(message.line))

    def hand_over(self, receiver: Receiver) -> None:
        self.receiver = receiver

    async def close(self) -> None:
        self.closed += 1
        if self.failure is not None:
            raise self.failure

    @property
    def methods(self) -> list[str | None]:
        return [line.get("method") for line in self.lines]

    def sent(self, method: str) -> dict[str, Any]:
        """The last message with this method."""
        return [line for line in self.lines if line.get("method") == method][-1]

    def say(self, message: object) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        decoded = decode(line)
        if isinstance(decoded, Message):
            self.receiver.received(decoded)
        else:
            report_unreadable(line, decoded, self.receiver, "server")

    def answer(self, asked: dict[str, Any], result: object = None) -> None:
        self.say({"jsonrpc": "2.0", "id": asked["id"], "result": {} if result is None else result})

    def refuse(self, asked: dict[str, Any], code: int = -32601) -> None:
        self.say({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": code, "message": "no"}})

    def notify(self, method: str, params: object = None) -> None:
        self.say({"jsonrpc": "2.0", "method": method, "params": {} if params is None else params})

    def ask(self, message_id: object, method: str) -> None:
        self.say({"jsonrpc": "2.0", "id": message_id, "method": method, "params": {}})


class Wires:
    """Opens wires; a test may hold the opening up, or let it fail."""

    def __init__(self) -> None:
        self.all: list[Wire] = []
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.prepare: Callable[[Wire], None] = lambda _: None

    async def __call__(self, receiver: Receiver) -> MessageChannel:
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        wire = Wire(receiver)
        self.all.append(wire)
        self.prepare(wire)
        return wire

    async def number(self, count: int) -> Wire:
        """The wire that was opened as the given one, once it is; 1 is the first."""
        await wait_until_async(lambda: len(self.all) >= count)
        await settle()
        return self.all[count - 1]


async def greeted(wires: Wires, link: UpstreamLink, number: int = 1) -> Wire:
    """Do the handshake over a link."""
    answer = ask(link, "hello", "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
    wire = await wires.number(number)
    wire.answer(wire.sent("initialize"), {"protocolVersion": "2025-11-25", "serverInfo": {"name": "x"}})
    assert (await answer.result())["protocolVersion"] == "2025-11-25"
    link.send(notification("notifications/initialized"))
    return wire
