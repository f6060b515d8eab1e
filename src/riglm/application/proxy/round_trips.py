"""One request of a handshake client to an upstream of the modern era, however many rounds it takes.

A handshake server sends the client requests. A modern server answers that input is required and gets the request
again with that input. This module converts the second form into the first.
"""

import asyncio
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.ports.downstream import NO_HEADERS
from riglm.ports.upstream import UpstreamLink, UpstreamRequest

MAX_ROUNDS: Final = 10
"""A server that wants input more often than this for one request is taken for one that never ends."""

_FIRST_PAUSE: Final = 0.05
_MAX_PAUSE: Final = 0.25

Translation = Callable[[dict[str, Raw]], bytes]
"""Makes the raw result that the client gets from the members of the upstream's."""


class PendingQuestions:
    """The questions that a client has not answered yet."""

    def __init__(self) -> None:
        self._count = itertools.count(1)
        self._open: dict[bytes, Callable[[Message], None]] = {}

    def ask(self, method: str, params: Raw | bytes, then: Callable[[Message], None]) -> Message:
        """A request for the client; `then` gets its response."""
        own = b'"riglm-ask-%d"' % next(self._count)
        self._open[own] = then
        if method == "elicitation/create" and b'"url"' in bytes(params):
            params = _with_elicitation_id(params, own)
        return jsonrpc.request(own, method, params)

    def answered(self, message: Message) -> None:
        """Pass a client's response to the request that needs it."""
        then = self._open.pop(jsonrpc.id_key(message.id or b"null"), None)
        if then is not None:
            then(message)

    def withdraw(self, question: Message) -> Message:
        """Stop waiting for responses; returns the notifications for the client."""
        self._open.pop(question.id or b"", None)
        params = b'{"requestId":%b,"reason":"the request that needed it has ended"}' % (question.id or b"null")
        return jsonrpc.notification("notifications/cancelled", params)


class BridgedRequest(UpstreamRequest):
    """Asks the upstream, then the client for what the upstream wants to know, then the upstream again."""

    headers = NO_HEADERS

    def __init__(
        self,
        message: Message,
        client: UpstreamRequest,
        *,
        link: UpstreamLink,
        questions: PendingQuestions,
        retry_ids: "itertools.count[int]",
        translate: Translation,
        on_end: Callable[["BridgedRequest"], None],
    ) -> None:
        """`message` is the request as the upstream is to get it, `client` the way back."""
        self.message = message
        self.client = client
        self._link = link
        self._questions = questions
        self._retry_ids = retry_ids
        self._translate = translate
        self._on_end = on_end
        self._params = message.params
        self._rounds = 0
        self._pause = _FIRST_PAUSE
        self._timer: asyncio.TimerHandle | None = None
        self._asked: dict[str, Message] = {}
        self._answers: dict[str, Raw] = {}
        self._state: Raw | None = None
        self._done = False

    def start(self) -> None:
        """Ask the upstream for the first time."""
        self._link.request(self.message, self)

    def related(self, message: Message) -> None:
        if not self._done:
            self.client.related(message)

    def paused(self, retry_ms: int) -> None:
        """Wait on."""

    def replied(self, message: Message, status: int = 200) -> None:
        if self._done:
            return
        if message.error:
            self._end()
            self.client.replied(error_for(self.client.message, message))
            return
        fields = jsonrpc.members(message.result)
        if jsonrpc.text(fields.get("resultType")) == "input_required":
            self._wants(fields)
        else:
            self._end()
            raw = self._translate(fields) if fields else message.result
            self.client.replied(jsonrpc.result(self.client.message.id or b"null", raw))

    def failed(self, kind: ErrorKind, words: str) -> None:
        if not self._done:
            self._end()
            self.client.failed(kind, words)

    def cancel(self, notice: Message | None) -> None:
        """The client gave the request up."""
        if not self._asked and self._timer is None:
            self._link.cancel(self, notice)
        self._end()

    def _wants(self, fields: Mapping[str, Raw]) -> None:
        """Start a round: ask the client for all that the upstream wants, or just wait a little."""
        self._rounds += 1
        name = self._link.spec.name
        if self._rounds > MAX_ROUNDS:
            self.failed(ErrorKind.PROTOCOL, f"upstream {name!r} asked for input more than {MAX_ROUNDS} times")
            return
        self._state = fields.get("requestState")
        wanted = {key: jsonrpc.members(raw) for key, raw in jsonrpc.members(fields.get("inputRequests", b"{}")).items()}
        self._answers = dict.fromkeys(wanted, Raw())
        if not wanted:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._again)
            self._pause = min(self._pause * 2, _MAX_PAUSE)
        elif all(jsonrpc.text(question.get("method")) for question in wanted.values()):
            self._pause = _FIRST_PAUSE
            self._ask(wanted)
        else:
            self.failed(ErrorKind.PROTOCOL, f"upstream {name!r} asked for input without saying which")

    def _ask(self, wanted: Mapping[str, Mapping[str, Raw]]) -> None:
        for key, question in wanted.items():
            method = jsonrpc.text(question.get("method")) or ""
            then = functools.partial(self._answered, key)
            self._asked[key] = self._questions.ask(method, question.get("params", b"{}"), then)
        for message in list(self._asked.values()):
            self.client.related(message)

    def _answered(self, key: str, answer: Message) -> None:
        del self._asked[key]
        if answer.error:
            self._end()
            self.client.replied(error_for(self.client.message, answer))
            return
        self._answers[key] = answer.result
        if not self._asked:
            self._again()

    def _again(self) -> None:
        """Ask the upstream again, with what it wanted."""
        self._timer = None
        fields = jsonrpc.members(self._params)
        if self._answers:
            fields["inputResponses"] = Raw(jsonrpc.join_object(self._answers))
        if self._state is not None:
            fields["requestState"] = self._state
        retry_id = b'"riglm-retry-%d"' % next(self._retry_ids)
        self.message = jsonrpc.request(retry_id, self.message.method or "", jsonrpc.join_object(fields))
        self._link.request(self.message, self)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for question in self._asked.values():
            self.client.related(self._questions.withdraw(question))
        self._done = True
        self._on_end(self)


def error_for(request: Message, error: Message) -> Message:
    """Return an error response with the id of this request."""
    if error.id == request.id:
        return error
    line = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request.id or b"null", bytes(error.error))
    return Message(line, request.id, None, error=error.error)


def _with_elicitation_id(params: Raw | bytes, own: bytes) -> Raw | bytes:
    """The params of an elicitation by URL as the handshake era wants them, which is under an id."""
    fields = jsonrpc.members(params)
    if jsonrpc.text(fields.get("mode")) != "url" or "elicitationId" in fields:
        return params
    return jsonrpc.join_object({**fields, "elicitationId": own})
