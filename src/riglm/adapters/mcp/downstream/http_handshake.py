"""Requests of the handshake era over HTTP: sessions, their streams, and what is asked within them."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from riglm.adapters.mcp.downstream.answer import (
    Events,
    Extra,
    Header,
    JsonOrSseResponse,
    Send,
    no_extra,
    send_error,
    send_status,
)
from riglm.adapters.mcp.downstream.event_log import ResumableSseResponse
from riglm.adapters.mcp.downstream.http_request import DisconnectWatcher, McpHttpRequest
from riglm.adapters.mcp.downstream.http_sessions import HttpSession, HttpSessions
from riglm.domain import jsonrpc, request_params
from riglm.domain.jsonrpc import Message

_ALLOWED: Final = ((b"allow", b"GET, POST, DELETE"),)
_FIRST_RESUMABLE: Final = b"2025-03-26"
_FIRST_PRIMED: Final = b"2025-11-25"
_STATE_REQUESTS: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})


class HandshakeEndpoint:
    """Opens sessions, and takes what clients send and ask within them."""

    def __init__(self, sessions: HttpSessions, buffer: int) -> None:
        """`buffer` bounds what waits for a client that does not read, in bytes."""
        self._sessions = sessions
        self._buffer = buffer
        self._server_streams: set[Events] = set()
        self.answers: dict[JsonOrSseResponse | Events, Message | None] = {}
        """What is being sent, with the request that it responds to."""

    async def answer(self, message: Message, request: McpHttpRequest, send: Send) -> None:
        """Answer one POST."""
        if message.method == "initialize" and message.is_request:
            await self._open(message, request, send)
            return
        session = await self._session(request, send)
        if session is None:
            return
        if message.is_request:
            await self._exchange(session, message, self._new_answer(session, request), request, send)
            if message.method in _STATE_REQUESTS:
                await self._sessions.keep(session, message, request.caller)
            return
        session.connection.receive(message)
        if message.method == "notifications/cancelled":
            _give_up(session, message)
        await send_status(send, 202)

    async def other(self, request: McpHttpRequest, send: Send) -> None:
        """Answer a request of another method."""
        if request.method == "GET":
            await self._listen(request, send)
        elif request.method == "DELETE":
            await self._end(request, send)
        else:
            await send_status(send, 405, _ALLOWED)

    def end_streams(self) -> None:
        """End the streams that would stay open without a request."""
        for events in self._server_streams:
            events.ended()

    def give_up(self) -> None:
        """Answer what is still in flight with an error."""
        for answer, message in list(self.answers.items()):
            if isinstance(answer, JsonOrSseResponse) and message is not None:
                answer.replied(jsonrpc.create_stop_error(message))

    async def _open(self, message: Message, request: McpHttpRequest, send: Send) -> None:
        session = self._sessions.open(request.caller)
        if session is None:
            await send_error(send, 503, jsonrpc.INTERNAL_ERROR, "Too many open sessions")
            return
        answer = _Initialize(self._buffer, request.cut)

        def extra(reply: Message | None) -> Iterable[Header]:
            return () if reply is not None and reply.error else ((b"mcp-session-id", session.id),)

        await self._sessions.keep(session, message, request.caller)  # the client may turn to another process at once
        try:
            await self._exchange(session, message, answer, request, send, extra)
        finally:
            if not answer.accepted:
                await self._sessions.end(session.id, request.caller)

    async def _end(self, request: McpHttpRequest, send: Send) -> None:
        session_id = await self._session_id(request, send)
        if session_id is None:
            return
        if await self._sessions.end(session_id, request.caller):
            await send_status(send, 200)
        else:
            await _refuse_session(send)

    def _new_answer(self, session: HttpSession, request: McpHttpRequest) -> JsonOrSseResponse:
        version = request.headers.get(b"mcp-protocol-version", b"")
        if version < _FIRST_RESUMABLE:
            return JsonOrSseResponse(self._buffer, request.cut)
        return ResumableSseResponse(session.log, self._buffer, request.cut, is_primed=version >= _FIRST_PRIMED)

    async def _exchange(
        self,
        session: HttpSession,
        message: Message,
        answer: JsonOrSseResponse,
        request: McpHttpRequest,
        send: Send,
        extra: Extra = no_extra,
    ) -> None:
        self.answers[answer] = message
        entry = (answer, jsonrpc.id_key(message.id or b"null"))
        session.ask(entry)
        try:
            session.connection.receive(message, answer)
            await answer.run(request, send, extra)
        finally:
            del self.answers[answer]
            session.settle(entry)
            session.last_used = time.monotonic()

    async def _listen(self, request: McpHttpRequest, send: Send) -> None:
        if not request.accepts(b"text/event-stream"):
            words = "Not acceptable: the client must accept text/event-stream"
            await send_error(send, 406, jsonrpc.INVALID_REQUEST, words)
            return
        session = await self._session(request, send)
        if session is None:
            return
        last_event_id = request.headers.get(b"last-event-id")
        if last_event_id is not None:
            await self._resume(session, last_event_id, request, send)
            return
        if session.server_stream is not None:
            await send_error(send, 409, jsonrpc.INVALID_REQUEST, "Conflict: the session has a stream open already")
            return
        session.server_stream = session.log.create(carries_server_messages=True)
        reader = Events(self._buffer, request.cut)
        session.server_stream.reader = reader
        await self._serve_messages(session, reader, request, send)

    async def _resume(self, session: HttpSession, last_event_id: bytes, request: McpHttpRequest, send: Send) -> None:
        """Go on with a stream that the client lost."""
        found = session.log.find(last_event_id)
        if found is None:
            words = "Bad request: nothing is kept after this event"
            await send_error(send, 400, jsonrpc.INVALID_REQUEST, words)
            return
        stream, place = found
        reader = Events(self._buffer, request.cut)
        stream.resume(place, reader)
        if stream.carries_server_messages:
            session.server_stream = stream
            await self._serve_messages(session, reader, request, send)
        else:
            is_disconnected = await self._stream(session, reader, request, send)
            stream.leave(reader, is_disconnected=is_disconnected)

    async def _serve_messages(self, session: HttpSession, reader: Events, request: McpHttpRequest, send: Send) -> None:
        """Send the stream for server messages until the client leaves."""
        stream = session.server_stream
        session.connection.listen(listening=True)
        self._server_streams.add(reader)
        try:
            await self._stream(session, reader, request, send)
        finally:
            self._server_streams.discard(reader)
            if session.server_stream is stream and (stream is None or stream.reader is reader):
                session.server_stream = None
                if session.is_open:
                    session.connection.listen(listening=False)

    async def _stream(self, session: HttpSession, events: Events, request: McpHttpRequest, send: Send) -> bool:
        """Send a stream to its end; whether the client left before."""
        self.answers[events] = None
        session.streams += (events,)
        try:
            with DisconnectWatcher(request, events.ended) as watch:
                await events.run(send, ((b"mcp-session-id", session.id),))
                return watch.is_disconnected
        finally:
            del self.answers[events]
            session.streams = tuple(one for one in session.streams if one is not events)
            session.last_used = time.monotonic()

    async def _session(self, request: McpHttpRequest, send: Send) -> HttpSession | None:
        session_id = await self._session_id(request, send)
        if session_id is None:
            return None
        session = self._sessions.find(session_id, request.caller)
        if session is None:
            session = await self._sessions.reopen(session_id, request.caller)
        if session is None:
            await _refuse_session(send)
        return session

    @staticmethod
    async def _session_id(request: McpHttpRequest, send: Send) -> bytes | None:
        session_id = request.headers.get(b"mcp-session-id")
        if session_id is None:
            await send_error(send, 400, jsonrpc.INVALID_REQUEST, "Bad request: missing session ID")
        return session_id


class _Initialize(JsonOrSseResponse):
    """The response to `initialize`; `accepted` is True if the server accepted the client."""

    __slots__ = ("accepted",)

    def __init__(self, limit: int, cut: Callable[[], None]) -> None:
        super().__init__(limit, cut)
        self.accepted = False

    def replied(self, message: Message, status: int = 200) -> None:
        self.accepted = not message.error
        super().replied(message, status)


async def _refuse_session(send: Send) -> None:
    await send_error(send, 404, jsonrpc.INVALID_REQUEST, "Session not found: initialize again")


def _give_up(session: HttpSession, notice: Message) -> None:
    """End the answer to a request that the client cancelled: nothing will come for it any more."""
    asked = list(session.asked)
    cancelled = jsonrpc.find_id([key for _, key in asked], request_params.cancelled_id(notice) or b"")
    for answer in [answer for answer, key in asked if key == cancelled]:
        answer.interrupted()
