"""A stand-in for everything behind the downstream adapters: does what the method of each message says."""

import asyncio
from collections.abc import Callable, Mapping

from riglm.application.connections.single_server import DualEraRouter
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.domain.request_params import RequestEnvelope, cancelled_id
from riglm.ports.downstream import (
    NO_HEADERS,
    Caller,
    ClientChannel,
    ClientResponseSink,
    DualEraConnection,
    InFlightRequest,
)
from riglm.ports.upstream import EventPosition, ResumedStreamHandler

PROGRESS = jsonrpc.notification("notifications/progress", b'{"progress":1}')


class Asked(InFlightRequest):
    """A request on its way; a test answers it when it likes."""

    def __init__(self, message: Message, sink: ClientResponseSink) -> None:
        self.message = message
        self.sink = sink
        self.done = False

    def say(self, message: Message = PROGRESS, event: EventPosition | None = None) -> None:
        self.sink.related(message, event)

    def answer(self, result: bytes = b"{}", event: EventPosition | None = None, status: int = 200) -> None:
        self.done = True
        self.sink.replied(jsonrpc.result(self.message.id or b"0", result), status, event)

    def fail(self, code: int, words: str = "no", status: int = 200) -> None:
        self.done = True
        self.sink.replied(jsonrpc.error(self.message.id, code, words), status)


class Script:
    """What came in, and how it is answered: `hold…` waits for the test, `boom` raises, the rest is echoed."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.told: list[Message] = []
        self.cancelled: list[InFlightRequest] = []
        self.changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, message: Message, sink: ClientResponseSink) -> Asked | None:
        if message.method in {"boom", "notifications/boom"}:
            raise RuntimeError("as the test wants")
        if not message.is_request:
            self.told.append(message)
            self._note()
            return None
        asked = Asked(message, sink)
        self.asked.append(asked)
        match message.method:
            case "initialize":
                asked.answer(
                    b'{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}'
                )
            case "progress":
                asked.say()
                asked.answer(bytes(message.params))
            case "progress/boom":
                asked.say()
                raise RuntimeError("as the test wants")
            case "refuse":
                asked.fail(jsonrpc.INVALID_PARAMS)
            case "initialize/refused" | "unknown":
                asked.fail(jsonrpc.METHOD_NOT_FOUND)
            case method if method is None or not method.startswith(("hold", "subscriptions/")):
                asked.answer(bytes(message.params) or b"{}")
            case _:
                pass
        self._note()
        return asked

    async def held(self, count: int = 1) -> Asked:
        """The `count`-th request that waits for the test."""

        def found() -> list[Asked]:
            return [one for one in self.asked if (one.message.method or "").startswith(("hold", "subscriptions/"))]

        await self.until(lambda: len(found()) >= count)
        return found()[count - 1]

    async def until(self, condition, seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(condition)

    def _note(self) -> None:
        async def notify() -> None:
            async with self.changed:
                self.changed.notify_all()

        task = asyncio.get_running_loop().create_task(notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Talk:
    """A conversation."""

    def __init__(self, inside: "Inside", caller: Caller, channel: ClientChannel) -> None:
        self.inside = inside
        self.caller = caller
        self.channel = channel
        self.resumable = inside.resumable
        self.listening: list[bool] = []
        self.resumed: list[tuple[bytes, ResumedStreamHandler]] = []
        self.left_to_client: list[bool] = []
        self.open: dict[bytes, Asked] = {}
        self.closed = False

    def received(
        self,
        message: Message,
        sink: ClientResponseSink,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        *,
        resumable: bool = False,
    ) -> InFlightRequest | None:
        if message.is_request:
            self.left_to_client.append(resumable)
        if message.method == "notifications/cancelled":
            asked = self.open.get(cancelled_id(message) or b"")
            if asked is not None:
                asked.done = True
                self.inside.script.cancelled.append(asked)
        asked = self.inside.script.take(message, sink)
        if asked is not None and message.id is not None:
            self.open[jsonrpc.id_key(message.id)] = asked
        return asked

    def listen(self, *, listening: bool) -> None:
        self.listening.append(listening)
        self.inside.script._note()

    def resume(self, last_event_id: bytes, stream: ResumedStreamHandler) -> None:
        self.resumed.append((last_event_id, stream))
        self.inside.script._note()

    async def close(self) -> None:
        self.inside.on_close()
        await asyncio.sleep(0)
        self.closed = True
        self.inside.script._note()
        if self.inside.closing_fails:
            raise RuntimeError("as the test wants")


class Modern:
    """The modern service."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.callers: list[Caller] = []
        self.schema: bytes | None = None

    def received(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        caller: Caller,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> InFlightRequest:
        self.callers.append(caller)
        asked = self.script.take(message, sink)
        assert asked is not None
        return asked

    def handle_notification(self, message: Message) -> None:
        self.script.take(message, None)  # type: ignore[arg-type]

    def cancel(self, in_flight: InFlightRequest, notice: Message | None = None) -> None:
        in_flight.done = True
        self.script.cancelled.append(in_flight)
        self.script._note()

    def input_schema(self, tool: str) -> bytes | None:
        return self.schema


class Inside:
    """A `DownstreamPort` whose conversations are scripted; what they are told is in `script`."""

    def __init__(self, *, resumable: bool = False) -> None:
        self.script = Script()
        self.modern = Modern(self.script)
        self.arrived = None
        self.resumable = resumable
        self.talks: list[Talk] = []
        self.held: list[bool] = []
        self.closing_fails = False
        self.on_close: Callable[[], object] = lambda: None

    def modern_for(self, caller: Caller) -> Modern:
        return self.modern

    def hold(self, *, on: bool) -> None:
        self.held.append(on)

    def converse(self, caller: Caller, channel: ClientChannel) -> Talk:
        self.talks.append(Talk(self, caller, channel))
        return self.talks[-1]

    def connect(self, caller: Caller, channel: ClientChannel, sink: ClientResponseSink) -> DualEraConnection:
        return DualEraRouter(self, caller, channel, sink)
