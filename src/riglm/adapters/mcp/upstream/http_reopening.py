"""Greets an upstream that forgot a client's session, in that client's own words."""

import asyncio
from collections.abc import Sequence
from typing import Final

from riglm.adapters.mcp.upstream.http_link import HttpPlace
from riglm.adapters.mcp.upstream.http_post import Body
from riglm.adapters.mcp.wire.framing import well_formed
from riglm.adapters.mcp.wire.http_client import Headers, HttpFailure, ResponseSink
from riglm.adapters.mcp.wire.sse import Event, EventParser
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailable
from riglm.domain.jsonrpc import Malformed, Message

SESSION_HEADER: Final = b"mcp-session-id"
_AGAIN: Final = b'"riglm-again"'


class _Answer(ResponseSink):
    """Awaits the answer to one message of riglm's own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._body = Body()
        self._parser: EventParser | None = None
        self.status = 0
        self.session_id = b""
        self.message: Message | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def head(self, status: int, headers: Headers) -> None:
        self.status = status
        self.session_id = headers.get(b"mcp-session-id") or b""
        if (headers.get(b"content-type") or b"").lower().startswith(b"text/event-stream"):
            self._parser = EventParser(self._event, self._limit)

    def data(self, chunk: bytes) -> None:
        if self._parser is not None:
            self._parser.feed(chunk)
        else:
            self._body.add(chunk)
            if self._body.size > self._limit:
                self._fail(f"the answer to the handshake is over the limit of {self._limit} bytes")

    def end(self) -> None:
        if self._parser is None:
            self.message = self._body.message()
        self._finish()

    def failed(self, failure: HttpFailure) -> None:
        self._fail(str(failure))

    def _event(self, event: Event) -> None:
        try:
            message = jsonrpc.decode(well_formed(event.data)) if event.data else None
        except Malformed:
            return
        if message is not None and message.is_response:
            self.message = message
            self._finish()

    def _fail(self, words: str) -> None:
        if not self.done.done():
            self.done.set_exception(UpstreamUnavailable(words))

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def greet(place: HttpPlace, handshake: Message, repeated: Sequence[Message]) -> tuple[bytes, bytes]:
    """Open a session with the client's own handshake, and repeat its subscriptions and log level.

    Returns:
        The session's id and the protocol revision.

    Raises:
        UpstreamUnavailable: the upstream cannot be reached or refuses.
    """
    opened = await _ask(place, place.headers, handshake.replace(id=_AGAIN))
    if opened.message is None or not opened.message.result:
        raise UpstreamUnavailable(f"the handshake was answered by HTTP {opened.status}")
    version = as_header(jsonrpc.text(jsonrpc.members(opened.message.result).get("protocolVersion")))
    block = place.headers + session_headers(opened.session_id, version)
    await _ask(place, block, jsonrpc.notification("notifications/initialized"))
    for message in repeated:
        await _ask(place, block, message.replace(id=_AGAIN))
    return opened.session_id, version


def as_header(version: str | None) -> bytes:
    """A protocol revision that a peer named, as a header may carry it; empty when it is none."""
    return version.encode() if version and version.isascii() and version.isprintable() else b""


def session_headers(session_id: bytes, version: bytes) -> bytes:
    """The headers that name a session and the revision spoken in it."""
    block = b"%b: %b\r\n" % (SESSION_HEADER, session_id) if session_id else b""
    return block + (b"mcp-protocol-version: %b\r\n" % version if version else b"")


async def _ask(place: HttpPlace, block: bytes, message: Message) -> _Answer:
    answer = _Answer(place.limit)
    exchange = place.client.send(place.target, b"POST", block, message.line, answer)
    try:
        await answer.done
    finally:
        exchange.abort()
    return answer
