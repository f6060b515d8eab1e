"""Finds out whether an upstream forgot a client's session, and greets it again in that client's own words."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from riglm.adapters.mcp import headers
from riglm.adapters.mcp.upstream.http_link import HttpEndpoint, HttpLink, HttpLinkContext
from riglm.adapters.mcp.upstream.http_post import PostRequest, names_session
from riglm.adapters.mcp.wire.event_stream import Event, EventParser
from riglm.adapters.mcp.wire.http_client import HttpClientError, HttpHeaders, HttpResponseSink
from riglm.adapters.mcp.wire.messages import ChunkBuffer, decode
from riglm.domain import jsonrpc, protocol, request_params
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.jsonrpc import Message, Raw
from riglm.ports.upstream import ServerMessageHandler, UpstreamRequest

SESSION_HEADER: Final = b"mcp-session-id"
_AGAIN: Final = b'"riglm-again"'
_PROOF: Final = jsonrpc.request(b'"riglm-proof"', "ping")
_PROOF_SECONDS: Final = 5.0
_SURELY_GONE: Final = frozenset({404, 410})
_PERHAPS_GONE: Final = frozenset({400, 503})


class _Answer(HttpResponseSink):
    """Awaits the response to one message that riglm sends itself."""

    def __init__(
        self, limit: int, on_message: Callable[[Message], None], on_session: Callable[[bytes], None] = lambda _: None
    ) -> None:
        """`on_message` gets what the server sends before its response, `on_session` the id of its session."""
        self._limit = limit
        self._on_message = on_message
        self._on_session = on_session
        self._body = ChunkBuffer()
        self._parser: EventParser | None = None
        self.status = 0
        self.session_id = b""
        self.message: Message | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def head(self, status: int, headers: HttpHeaders) -> None:
        self.status = status
        self.session_id = headers.get(b"mcp-session-id") or b""
        self._on_session(self.session_id)
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
            body = decode(self._body.take(b""))
            self.message = body if isinstance(body, Message) else None
        self._finish()

    def failed(self, failure: HttpClientError) -> None:
        self._fail(str(failure))

    def _event(self, event: Event) -> None:
        message = decode(event.data)
        if not isinstance(message, Message):
            return
        if message.is_response:
            self.message = message
            self._finish()
        else:
            self._on_message(message)

    def _fail(self, words: str) -> None:
        if not self.done.done():
            self.done.set_exception(UpstreamUnavailableError(words))

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


def forgot(status: int, asked: Message, answer: Message | None, *, in_session: bool) -> bool | None:
    """Return True if an HTTP error means that the session is forgotten; None if that needs a further request.

    `answer` is the error's body where that is a message, `in_session` whether the request named a session. A 404 to a
    request with a session means exactly this, with any body; but some servers also send it for an unknown method.
    """
    about_request = answer is not None and answer.id == asked.id
    if status in _SURELY_GONE:
        if not about_request:
            return True
        return (None if _is_unknown_method(answer) else True) if in_session else False
    if status not in _PERHAPS_GONE or not in_session:
        return False
    return None if names_session(answer) or not about_request else False


async def is_known(place: HttpEndpoint, block: bytes, on_message: Callable[[Message], None]) -> bool:
    """True if the upstream still knows the session in the header block, or if that is unknown."""
    try:
        answer = await asyncio.wait_for(_ask(place, block, _PROOF, on_message), _PROOF_SECONDS)
    except (UpstreamUnavailableError, TimeoutError):
        return True
    return answer.status not in _SURELY_GONE | _PERHAPS_GONE or _is_unknown_method(answer.message)


async def greet(
    place: HttpEndpoint,
    handshake: Message,
    repeated: Sequence[Message],
    on_message: Callable[[Message], None],
    on_session: Callable[[bytes], None],
) -> tuple[bytes, bytes]:
    """Open a session with the client's own handshake, and repeat its subscriptions and log level.

    `on_message` gets what the server sends before its responses, `on_session` the session's id as soon as it is known.

    Returns:
        The session's id and the protocol revision.

    Raises:
        UpstreamUnavailableError: the upstream cannot be reached or refuses.
    """
    opened = await _ask(place, place.headers, handshake.replace(id=_AGAIN), on_message, on_session)
    if opened.message is None or not opened.message.result:
        raise UpstreamUnavailableError(f"the handshake was answered by HTTP {opened.status}")
    version = as_header(jsonrpc.text(jsonrpc.members(opened.message.result).get("protocolVersion")))
    block = place.headers + session_headers(opened.session_id, version)
    await _ask(place, block, jsonrpc.notification("notifications/initialized"), on_message)
    for message in repeated:
        await _ask(place, block, message.replace(id=_AGAIN), on_message)
    return opened.session_id, version


def as_header(version: str | None) -> bytes:
    """A protocol revision that a peer named, as a header may carry it; empty when it is none."""
    return version.encode() if version and version.isascii() and version.isprintable() else b""


def session_headers(session_id: bytes, version: bytes) -> bytes:
    """Return the headers with a session's id and protocol version."""
    block = b"%b: %b\r\n" % (SESSION_HEADER, session_id) if session_id else b""
    return block + (b"mcp-protocol-version: %b\r\n" % version if version else b"")


def _is_unknown_method(answer: Message | None) -> bool:
    return answer is not None and jsonrpc.error_code(answer) == jsonrpc.METHOD_NOT_FOUND


async def _ask(
    place: HttpEndpoint,
    block: bytes,
    message: Message,
    on_message: Callable[[Message], None],
    on_session: Callable[[bytes], None] = lambda _: None,
) -> _Answer:
    answer = _Answer(place.limit, on_message, on_session)
    exchange = place.client.send(place.target, b"POST", block, message.line, answer)
    try:
        await answer.done
    finally:
        exchange.abort()
    return answer


_LATEST: Final = protocol.MODERN_VERSIONS[-1].encode()


class ModernHttpLink(HttpLink):
    """Adds the headers that repeat the body; to give a request up is to close its connection."""

    def __init__(
        self,
        around: HttpLinkContext,
        message_handler: ServerMessageHandler,
        input_schema: Callable[[str, str], Raw | None],
    ) -> None:
        """`input_schema` gives the schema of an upstream's tool as last listed, by upstream and tool."""
        super().__init__(around, message_handler)
        self._input_schema = input_schema

    def block(self, post: PostRequest) -> bytes:
        given = post.reply.headers
        if given:
            return self._around.headers + b"".join(b"%b: %b\r\n" % pair for pair in given.items())
        envelope = request_params.envelope(post.message)
        version = as_header(envelope.version if envelope else None) or _LATEST
        return self._around.headers + headers.for_request(post.message, version, self._parameters(post.message))

    def send(self, message: Message) -> None:
        block = self._around.headers + headers.for_request(message, _LATEST, ())
        self.notify(block, message, self._around.place.timeout_seconds.initialize)

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        post = self._around.posts.get(id(reply))
        if post is not None:
            self.ended(post)
            post.abandon()

    def _parameters(self, message: Message) -> tuple[headers.AnnotatedParameter, ...]:
        if message.method != "tools/call":
            return ()
        tool = jsonrpc.text(request_params.read(message).name)
        schema = self._input_schema(self.spec.name, tool) if tool else None
        return headers.annotated(schema) if schema else ()
