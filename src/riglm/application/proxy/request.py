"""A client's request, the one object that passes the stages; and requests that riglm sends itself."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar, copy_context
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from riglm.domain import jsonrpc, request_params
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.request_params import RequestEnvelope
from riglm.domain.session import Session, Transport
from riglm.ports.downstream import NO_HEADERS, Caller, ClientResponseSink
from riglm.ports.upstream import UpstreamLink, UpstreamRequest

if TYPE_CHECKING:
    from riglm.application.proxy.call_stages import Call
    from riglm.application.proxy.connection import Connection
    from riglm.application.proxy.eras import Era
    from riglm.application.proxy.member import Member
    from riglm.application.proxy.proxy_service import ProxyService
    from riglm.application.proxy.stage import Stage
    from riglm.application.proxy.tracing_stage import RequestSpan, UpstreamSpan
    from riglm.application.proxy.upstreams import Upstreams
    from riglm.application.session_sharing.session_sharing_service import Visit
    from riglm.domain.tool import ToolCatalog

CALL: Final = "tools/call"
LIST: Final = "tools/list"

MAX_PAGES: Final = 1000
"""Maximum number of pages of a list. A longer one is taken for endless, and ends there."""

MAX_LIST_BYTES: Final = 64 << 20
"""Maximum bytes of all pages of a list."""

MAX_LIST_SECONDS: Final = 120.0
"""Maximum time in seconds for a complete list."""

_FAILURE_CODES: Final = {ErrorKind.TIMEOUT: jsonrpc.REQUEST_TIMEOUT}
_log: Final = logging.getLogger("riglm.proxy")

serving: "Final[ContextVar[Request | None]]" = ContextVar("riglm_request", default=None)
"""The traced request that the running task serves."""


def failure(message_id: bytes | None, kind: ErrorKind, reason: str) -> Message:
    """Return the error for a request without a reply."""
    return jsonrpc.error(message_id, _FAILURE_CODES.get(kind, jsonrpc.UPSTREAM_UNAVAILABLE), reason)


class Request(UpstreamRequest):
    """A request of a client, from its arrival to its reply.

    `asked` is the client's message, `message` the one for the server, which a stage may have changed, and `params`
    what riglm reads of its params. `link` owes a reply while it is set. `failure` is set if riglm made the reply
    because there was none. `status` is the HTTP status of the reply. By `time.perf_counter`, it came at `started`,
    riglm went on with it at `arrived`, after what it had to wait for, and sent it to its server at `left`, whose
    reply came at `came`.
    """

    key = b""
    """The key of its id."""
    left = came = 0.0
    done = False
    passed: "tuple[Stage, ...]" = ()
    task: asyncio.Task[None] | None = None
    link: UpstreamLink | None = None
    member: "Member | None" = None
    own_name: str | None = None
    """The server's name for the tool or prompt, once it is known."""
    session: Session
    visit: "Visit | None" = None
    call: "Call | None" = None
    catalog: "ToolCatalog | None" = None
    changes = 0
    """How often the tools had changed when a list of them was requested."""
    tools_version = 0
    """That of the link at that time."""
    failure: ErrorKind | None = None
    status = 200
    span: "RequestSpan | None" = None
    upstream_span: "UpstreamSpan | None" = None
    tool: str | None = None
    """The name in a call, as the client sent it or as `call_tool` gave it; None if it is no text."""
    is_by_call_tool = False

    def __init__(
        self,
        proxy: "ProxyService",
        upstreams: "Upstreams",
        message: Message,
        sink: ClientResponseSink,
        caller: Caller,
        *,
        connection: "Connection | None" = None,
        envelope: RequestEnvelope | None = None,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        arrived: float = 0.0,
    ) -> None:
        """`connection` is None for a modern request over HTTP, and `envelope` None in the handshake era."""
        self.proxy = proxy
        self.upstreams = upstreams
        self.era: Era = upstreams.era
        self.asked = self.message = message
        self.method = message.method or ""
        self.params = request_params.read(message)
        self.sink = sink
        self.caller = caller
        self.connection = connection
        self.envelope = envelope
        self.handshake = connection if envelope is None else None
        """The connection of a request of the handshake era; None in the modern era."""
        self.headers = headers
        self.has_unique_id = caller.transport is Transport.STDIO  # there is no other client
        self.started = self.arrived = arrived or perf_counter()
        if self.method == CALL:
            self.tool = request_params.tool_name(self.params)

    @property
    def id(self) -> bytes:
        """The raw id that the client gave."""
        return self.asked.id or b"null"

    @property
    def has_cursor(self) -> bool:
        """Whether it asks for a further page of a list."""
        return b'"cursor"' in self.message.line and "cursor" in jsonrpc.members(self.message.params)

    def send(self, link: UpstreamLink) -> None:
        """Send it to a server."""
        self.link = link
        if self.span is not None:
            self.upstream_span, self.message = self.span.start_upstream(self.message, link)
        if not self.left:
            self.left = perf_counter()
        link.request(self.message, self)

    def resume(self) -> None:
        """Go on after waiting for a server, which does not count as work of riglm."""
        self.arrived = perf_counter()

    def own_seconds(self) -> float:
        """Return how long riglm itself has worked for it."""
        return self.left - self.arrived + perf_counter() - self.came

    def retarget(self, name: bytes, arguments: bytes) -> None:
        """Let it call the tool that call_tool names, with raw arguments; all other members of the request are kept."""
        fields = jsonrpc.members(self.message.params)
        fields["name"] = Raw(name)
        fields.pop("arguments", None)
        if arguments:
            fields["arguments"] = Raw(arguments)
        self.message = self.message.replace(params=jsonrpc.join_object(fields))
        self.headers = NO_HEADERS
        self.params = request_params.read(self.message)
        self.tool = request_params.tool_name(self.params)
        self.is_by_call_tool = True

    def related(self, message: Message) -> None:
        """Pass on a notification or request of the server that belongs to this request."""
        if not self.done and self.link is not None and (seen := self.upstreams.to_client(message, self.link)):
            self.sink.related(seen)

    def related_by(self, link: UpstreamLink) -> Callable[[Message], None]:
        """Return a callback for what a server sends while riglm requests something for this request."""

        def related(message: Message) -> None:
            if not self.done and (seen := self.upstreams.to_client(message, link)):
                self.sink.related(seen)

        return related

    def paused(self, retry_ms: int) -> None:
        """The server closed its stream for a while."""
        if not self.done:
            self.sink.paused(retry_ms)

    def replied(self, message: Message, status: int = 200) -> None:
        """Take the reply of the server; what comes later is ignored."""
        if self.link is not None:
            self.link = None
            self.came = perf_counter()
            self.status = status
            if self.upstream_span is not None:
                self.upstream_span.end(message)
            self.proxy.finish(self, message)

    def failed(self, kind: ErrorKind, words: str) -> None:
        """Take the reason why there will be no reply."""
        if self.link is not None:
            self.link = None
            self.failure = kind
            if self.upstream_span is not None:
                self.upstream_span.fail(kind.value)
            self.proxy.finish(self, failure(self.id, kind, words))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on in a task."""
        context = copy_context()
        if self.span is not None:
            context.run(serving.set, self)
        self.task = asyncio.get_running_loop().create_task(work, context=context)

    def cancel(self, notice: Message | None = None) -> None:
        """Stop working for it: no reply is owed any more. May be called twice; `notice` is the client's."""
        if self.done:
            return
        link, self.link = self.link, None
        if link is not None:
            link.cancel(self, notice)
            if self.upstream_span is not None:
                self.upstream_span.fail("cancelled")
        if self.task is not None:
            self.task.cancel()
        self.proxy.finish(self, None)


class OwnRequest(UpstreamRequest):
    """A request that riglm sends itself: it passes no stages, and its reply is awaited."""

    has_unique_id = True

    def __init__(self, message: Message, on_message: Callable[[Message], None]) -> None:
        self.message = message
        self.headers = NO_HEADERS
        self.failure: ErrorKind | None = None
        self.reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._on_message = on_message

    def related(self, message: Message) -> None:
        """Pass on what the server sends meanwhile: some ask the client before they reply."""
        if not self.reply.done():
            try:
                self._on_message(message)
            except Exception:  # noqa: BLE001  # it must not cost the reply
                _log.exception("riglm failed at a message of a server, and left it out")

    def paused(self, retry_ms: int) -> None:
        """Wait on."""

    def replied(self, message: Message, status: int = 200) -> None:
        """Take the reply."""
        if not self.reply.done():
            self.reply.set_result(message)

    def failed(self, kind: ErrorKind, words: str) -> None:
        """Take the reason why there will be no reply."""
        if not self.reply.done():
            self.failure = kind
            self.reply.set_result(failure(self.message.id, kind, words))


_prefix: Final = f"riglm-{secrets.token_hex(4)}".encode()
_numbers: Final = count(1)


def new_id() -> bytes:
    """Return a raw id that no client uses."""
    return b'"%b-%d"' % (_prefix, next(_numbers))


async def ask(
    link: UpstreamLink, method: str, params: bytes, on_message: Callable[[Message], None]
) -> tuple[Message, ErrorKind | None]:
    """Return the reply to a request of riglm, or an error with the reason why there is none.

    Cancelling withdraws the request. `on_message` gets what the server sends meanwhile.
    """
    message, span, client = jsonrpc.request(new_id(), method, params), None, serving.get()
    if client is not None and client.span is not None:
        span, message = client.span.start_upstream(message, link)
    own = OwnRequest(message, on_message)
    link.request(message, own)
    try:
        reply = await own.reply
    except asyncio.CancelledError:
        link.cancel(own, None)
        if span is not None:
            span.fail("cancelled")
        raise
    if span is not None:
        span.end(reply)
    return reply, own.failure


async def list_pages(
    link: UpstreamLink, method: str, params: bytes, on_message: Callable[[Message], None], first: Message | None = None
) -> tuple[list[Message], Message]:
    """Return all pages of a list, and the last reply: an error ends the list, as does a list that looks endless.

    `first` is the first page, if it is there already.
    """
    pages: list[Message] = []
    seen: set[bytes] = set()
    size, deadline = 0, asyncio.get_running_loop().time() + MAX_LIST_SECONDS
    reply = first or (await ask(link, method, params, on_message))[0]
    while reply.result:
        pages.append(reply)
        size += len(reply.line)
        cursor = next_cursor(reply)
        if not cursor:
            break
        is_late = asyncio.get_running_loop().time() > deadline
        if cursor in seen or len(pages) >= MAX_PAGES or size > MAX_LIST_BYTES or is_late:
            about = {"upstream": link.spec.name, "method": method, "pages": len(pages)}
            _log.warning("a list exceeds the limits of pagination; riglm uses the pages received so far", extra=about)
            break
        seen.add(cursor)
        params = jsonrpc.with_member(params, ("cursor",), cursor)
        reply, _ = await ask(link, method, params, on_message)
    return pages, reply


def next_cursor(page: Message) -> bytes:
    """Return the raw cursor of the page that follows; empty if none does."""
    if page.next_cursor is None:
        has_cursor = b'"nextCursor"' in page.line
        page.next_cursor = jsonrpc.next_cursor(jsonrpc.members(page.result)) if has_cursor else b""
    return page.next_cursor
