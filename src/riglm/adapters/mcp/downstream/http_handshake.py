"""Requests of the handshake era over HTTP: sessions, their streams, and what is asked within them."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from riglm.adapters.mcp.downstream.answer import (
    DelayedResponseSink,
    Events,
    Extra,
    Header,
    HttpResponse,
    JsonOrSseResponse,
    Send,
    no_extra,
    send_error,
    send_status,
)
from riglm.adapters.mcp.downstream.http_request import DisconnectWatcher, McpHttpRequest
from riglm.adapters.mcp.downstream.http_sessions import HttpSession, HttpSessions, SharedHttpSessions
from riglm.domain import jsonrpc, protocol, request_params
from riglm.domain.errors import SessionEndedError
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import BeforeResponse, ClientResponseSink
from riglm.ports.upstream import EventPosition

_ALLOWED: Final = ((b"allow", b"GET, POST, DELETE"),)
_RESUMING: Final = frozenset(one.encode() for one in protocol.HANDSHAKE_VERSIONS if one >= "2025-11-25")


class _NullResponseSink(ClientResponseSink):
    """Notifications and responses have no answer."""

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        """Do nothing."""

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        """Do nothing."""


_NOBODY: Final = _NullResponseSink()


class HandshakeEndpoint:
    """Opens sessions, and takes what clients send and ask within them."""

    def __init__(self, sessions: HttpSessions, buffer: int, shared: SharedHttpSessions | None) -> None:
        """`buffer` bounds what waits for a client that does not read, in bytes.

        `shared` are the sessions once more, if other processes know of them.
        """
        self._sessions = sessions
        self._shared = shared
        self._buffer = buffer
        self._visibility: set[Events] = set()
        self.answers: dict[HttpResponse | Events, Message | None] = {}
        """What is being sent, with the request if no other process can answer it."""

    async def answer(self, message: Message, request: McpHttpRequest, send: Send) -> None:
        """Answer one POST."""
        if message.method == "initialize" and message.is_request:
            await self._open(message, request, send)
            return
        session = await self._session(request, send)
        if session is None:
            return
        before_response = None
        if self._shared is not None:
            try:
                before_response = await self._shared.arrives(session, message, request.caller)
            except SessionEndedError:
                await _refuse_session(send)
                return
        if message.is_request:
            await self._exchange(
                session, message, self._new_answer(session, request), request, send, before_response=before_response
            )
            return
        session.conversation.received(message, _NOBODY)
        if message.method == "notifications/cancelled":
            _give_up(session, message)
        await send_status(send, 202)

    async def other(self, request: McpHttpRequest, send: Send) -> None:
        """Answer a request of another method."""
        if request.method == "GET":
            await self._listen(request, send)
        elif request.method == "DELETE":
            session = await self._session(request, send, to_end=True)
            if session is not None:
                await self._sessions.end(session)
                await send_status(send, 200)
        else:
            await send_status(send, 405, _ALLOWED)

    def end_streams(self) -> None:
        """End the streams that would stay open without a request."""
        for events in self._visibility:
            events.ended()

    def give_up(self) -> None:
        """Answer what is still in flight with an error, or leave it to the process that the client turns to next."""
        for answer, message in list(self.answers.items()):
            if isinstance(answer, HttpResponse):
                if message is None:
                    answer.interrupted()
                else:
                    answer.replied(jsonrpc.create_stop_error(message))

    async def _open(self, message: Message, request: McpHttpRequest, send: Send) -> None:
        session = self._sessions.open(request.caller)
        if session is None:
            await send_error(send, 503, jsonrpc.INTERNAL_ERROR, "Too many open sessions")
            return
        answer = _Initialize(self._buffer, request.cut)

        def extra(reply: Message | None) -> Iterable[Header]:
            return () if reply is not None and reply.error else ((b"mcp-session-id", session.id),)

        before_response = None
        if self._shared is not None:
            before_response = await self._shared.opening(session, message, request.caller)
        try:
            await self._exchange(session, message, answer, request, send, extra, before_response)
        finally:
            if not answer.accepted:
                self._sessions.discard(session)

    def _new_answer(self, session: HttpSession, request: McpHttpRequest) -> HttpResponse:
        if not session.conversation.resumable and request.headers.get(b"mcp-protocol-version") in _RESUMING:
            return session.log.answer(self._buffer, request.cut)
        return JsonOrSseResponse(self._buffer, request.cut)

    async def _exchange(
        self,
        session: HttpSession,
        message: Message,
        answer: HttpResponse,
        request: McpHttpRequest,
        send: Send,
        extra: Extra = no_extra,
        before_response: BeforeResponse | None = None,
    ) -> None:
        can_move = self._shared is not None and session.conversation.resumable
        self.answers[answer] = None if can_move else message
        sink = answer if before_response is None else DelayedResponseSink(answer, before_response)
        entry = (answer, jsonrpc.id_key(message.id or b"null"))
        session.ask(entry)
        try:
            session.conversation.received(message, sink, resumable=session.conversation.resumable)
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
        if last_event_id is None:
            await self._stand(session, request, send)
        elif session.conversation.resumable:
            events = Events(self._buffer, request.cut)
            session.conversation.resume(last_event_id, events)
            await self._stand_open(session, events, request, send)
        else:
            await self._resume(session, last_event_id, request, send)

    async def _stand(self, session: HttpSession, request: McpHttpRequest, send: Send) -> None:
        """Give what belongs to no request a stream."""
        if session.events is not None:
            await send_error(send, 409, jsonrpc.INVALID_REQUEST, "Conflict: the session has a stream open already")
            return
        session.events = Events(self._buffer, request.cut)
        session.conversation.listen(listening=True)
        if self._shared is not None:
            self._shared.listening(session)
        try:
            await self._stand_open(session, session.events, request, send)
        finally:
            session.events = None
            if session.is_open:
                session.conversation.listen(listening=False)

    async def _resume(self, session: HttpSession, last_event_id: bytes, request: McpHttpRequest, send: Send) -> None:
        """Go on with an answer whose stream the client lost."""
        found = session.log.find(last_event_id)
        if found is None:
            words = "Bad request: nothing is kept after this event"
            await send_error(send, 400, jsonrpc.INVALID_REQUEST, words)
            return
        answer, place = found
        events = Events(self._buffer, request.cut)
        answer.resume(place, events)
        left = await self._stream(session, events, request, send)
        answer.delivered(events, left=left)

    async def _stand_open(self, session: HttpSession, events: Events, request: McpHttpRequest, send: Send) -> None:
        """Send a stream that no answer ends."""
        self._visibility.add(events)
        try:
            await self._stream(session, events, request, send)
        finally:
            self._visibility.discard(events)

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

    async def _session(self, request: McpHttpRequest, send: Send, *, to_end: bool = False) -> HttpSession | None:
        session_id = request.headers.get(b"mcp-session-id")
        if session_id is None:
            await send_error(send, 400, jsonrpc.INVALID_REQUEST, "Bad request: missing session ID")
            return None
        session = self._sessions.find(session_id, request.caller)
        if session is None and self._shared is not None:
            session = await self._shared.take_over(session_id, request.caller, to_end=to_end)
        if session is None:
            await _refuse_session(send)
        return session


class _Initialize(JsonOrSseResponse):
    """The response to `initialize`; `accepted` is True if the server accepted the client."""

    __slots__ = ("accepted",)

    def __init__(self, limit: int, cut: Callable[[], None]) -> None:
        super().__init__(limit, cut)
        self.accepted = False

    def replied(self, message: Message, status: int = 200, event: EventPosition | None = None) -> None:
        self.accepted = not message.error
        super().replied(message, status, event)


async def _refuse_session(send: Send) -> None:
    await send_error(send, 404, jsonrpc.INVALID_REQUEST, "Session not found: initialize again")


def _give_up(session: HttpSession, notice: Message) -> None:
    """End the answer to a request that the client cancelled: nothing will come for it any more."""
    cancelled = request_params.cancelled_id(notice)
    for answer in [answer for answer, key in session.asked if key == cancelled]:
        answer.interrupted()
