"""A stand-in for everything behind the downstream adapters: does what the method of each message says."""

import asyncio
from collections.abc import Callable, Mapping

from riglm.domain import jsonrpc, request_params
from riglm.domain.jsonrpc import Message
from riglm.domain.request_params import RequestEnvelope, cancelled_id
from riglm.ports.downstream import NO_HEADERS, Caller, ClientChannel, ClientResponseSink, InFlightRequest

PROGRESS = jsonrpc.notification("notifications/progress", b'{"progress":1}')


class Asked(InFlightRequest):
    """A request on its way; a test answers it when it likes."""

    def __init__(self, script: "Script", message: Message, sink: ClientResponseSink) -> None:
        self.script = script
        self.message = message
        self.sink = sink
        self.done = False

    def say(self, message: Message = PROGRESS) -> None:
        self.sink.related(message)

    def pause(self, retry_ms: int) -> None:
        self.sink.paused(retry_ms)

    def answer(self, result: bytes = b"{}", status: int = 200) -> None:
        self.done = True
        self.sink.replied(jsonrpc.result(self.message.id or b"0", result), status)

    def cancel(self, notice: Message | None = None) -> None:
        if not self.done:
            self.done = True
            self.script.cancelled.append(self)
            self.script._note()

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
        asked = Asked(self, message, sink)
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
    """A client's connection."""

    def __init__(
        self, inside: "Inside", caller: Caller, channel: ClientChannel, sink: ClientResponseSink | None
    ) -> None:
        self.inside = inside
        self.caller = caller
        self.channel = channel
        self.sink = sink
        self.listening: list[bool] = []
        self.open: dict[bytes, Asked] = {}
        self.closed = False

    @property
    def in_flight(self) -> list[Message]:
        return [
            one.message for one in self.open.values() if not one.done and one.message.method != "subscriptions/listen"
        ]

    def receive_line(self, line: bytes) -> None:
        try:
            message = jsonrpc.decode(line)
        except jsonrpc.MalformedMessageError as error:
            assert self.sink is not None
            self.sink.replied(jsonrpc.error(error.id, error.code, str(error)))
        else:
            self.receive(message)

    def receive(
        self, message: Message, sink: ClientResponseSink | None = None, headers: Mapping[bytes, bytes] = NO_HEADERS
    ) -> InFlightRequest | None:
        if message.method == "notifications/cancelled":
            asked = self.open.get(cancelled_id(message) or b"")
            if asked is not None:
                asked.cancel(message)
        sink = sink or self.sink
        if message.is_request and request_params.envelope(message) is not None:
            self.inside.modern.callers.append(self.caller)
        try:
            asked = self.inside.script.take(message, sink)  # type: ignore[arg-type]
        except RuntimeError:
            if message.is_request and sink is not None:
                words = "Internal error in riglm: its log says more"
                sink.replied(jsonrpc.error(message.id, jsonrpc.INTERNAL_ERROR, words))
            return None
        if asked is not None and message.id is not None:
            self.open[jsonrpc.id_key(message.id)] = asked
        if message.method == "notifications/initialized" and self.sink is not None:
            self.listen(listening=True)
        return asked

    def listen(self, *, listening: bool) -> None:
        self.listening.append(listening)
        self.inside.script._note()

    async def close(self) -> None:
        self.inside.on_close()
        await asyncio.sleep(0)
        self.closed = True
        self.inside.script._note()
        if self.inside.closing_fails:
            raise RuntimeError("as the test wants")


class Modern:
    """What modern requests meet."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self.schema: bytes | None = None


class Inside:
    """A `DownstreamPort` whose connections are scripted; what they are told is in `script`."""

    def __init__(self) -> None:
        self.script = Script()
        self.modern = Modern()
        self.talks: list[Talk] = []
        self.held: list[bool] = []
        self.closing_fails = False
        self.on_close: Callable[[], object] = lambda: None

    def hold(self, *, on: bool) -> None:
        self.held.append(on)

    def connect(self, caller: Caller, channel: ClientChannel, sink: ClientResponseSink | None = None) -> Talk:
        self.talks.append(Talk(self, caller, channel, sink))
        return self.talks[-1]

    def receive_modern(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        caller: Caller,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
    ) -> InFlightRequest:
        self.modern.callers.append(caller)
        asked = self.script.take(message, sink)
        assert asked is not None
        return asked

    def notify_modern(self, message: Message, caller: Caller) -> None:
        self.script.take(message, None)  # type: ignore[arg-type]

    def input_schema(self, tool: str, caller: Caller) -> bytes | None:
        return self.modern.schema
