"""Requests of the modern era in front of one upstream."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import Final

from riglm.application.filter_middleware.filtering_modern import FilteringModernHandler
from riglm.application.filter_middleware.middleware import FilterMiddleware
from riglm.application.forwarding.proxied_request import NOWHERE, ProxiedRequest
from riglm.application.forwarding.services import RequestServices, tool_name
from riglm.domain import jsonrpc, protocol, request_params
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.request_params import RequestEnvelope
from riglm.domain.session import ProtocolEra, Session
from riglm.ports.downstream import NO_HEADERS, ClientResponseSink
from riglm.ports.upstream import NullServerMessageHandler, UpstreamLink, UpstreamPort

_MAX_SILENCES: Final = 6
"""Maximum number of probes without an answer, after which only the next request sends one again."""

_MODERN_ERRORS: Final = frozenset({jsonrpc.HEADER_MISMATCH, -32021})


def probe(request_id: bytes) -> Message:
    """Return the `server/discover` request that riglm sends."""
    meta = {
        protocol.META_VERSION: protocol.MODERN_VERSIONS[-1],
        protocol.META_CLIENT: {"name": "riglm", "version": "1"},
        protocol.META_CAPABILITIES: {},
    }
    return jsonrpc.request(request_id, "server/discover", jsonrpc.encode({"_meta": meta}))


def refusal(
    message: Message,
    requested: str | None,
    supported: Sequence[str] = protocol.HANDSHAKE_VERSIONS,
    *,
    is_silent: bool = False,
) -> Message:
    """The error for modern clients of an upstream that supports only the handshake era, or has not answered yet.

    It may open with any of `supported`: riglm passes the handshake on, and the upstream settles on a revision.
    """
    data = {"supported": list(supported), "requested": requested or ""}
    reason = "The server has not answered yet: try again, or" if is_silent else "Unsupported protocol version:"
    return jsonrpc.error(message.id, jsonrpc.UNSUPPORTED_PROTOCOL_VERSION, f"{reason} open with initialize", data)


def verdict(message: Message) -> bool | None:
    """Whether an answer to `server/discover` shows an upstream of the modern era; None when it shows neither."""
    if message.result:
        return _is_modern(_named(message))
    code = jsonrpc.error_code(message)
    if code in _MODERN_ERRORS:
        return True
    if code == jsonrpc.UNSUPPORTED_PROTOCOL_VERSION:
        return _is_modern(_named(message))
    return False if code == jsonrpc.METHOD_NOT_FOUND else None


def _named(message: Message) -> list[object]:
    """The revisions that an answer to `server/discover` names."""
    if message.result:
        raw = jsonrpc.members(message.result).get("supportedVersions")
    else:
        raw = jsonrpc.members(jsonrpc.members(message.error).get("data", b"{}")).get("supported")
    versions = jsonrpc.plain(raw) if raw else []
    return versions if isinstance(versions, list) else []


def _is_modern(versions: list[object]) -> bool:
    """Whether there is a revision beyond the handshake's among them, be it one that riglm does not know yet."""
    return any(version not in protocol.HANDSHAKE_VERSIONS for version in versions)


class EraProbe:
    """Checks by `server/discover` whether an upstream supports the modern era.

    A server that does not answer gets the request again for a while, since it may still be starting.
    """

    def __init__(self, upstream: UpstreamPort, link: UpstreamLink, *, silence_tells: bool = True) -> None:
        """`silence_tells`: whether a server that does not answer is taken, for a while, for one of the handshake."""
        self._upstream = upstream
        self._link = link
        self._silence_tells = silence_tells
        self.supported: Sequence[str] = protocol.HANDSHAKE_VERSIONS
        """The revisions of the handshake that the upstream named when it refused; all of them if it named none."""
        self._silences = 0
        self._is_asked = False
        self._waiting: list[Callable[[bool | None], None]] = []

    def ask(self, then: Callable[[bool | None], None]) -> None:
        """Call `then` with the answer; None when there is none."""
        if self.is_silent:
            then(False)
            return
        context = copy_context()  # of the request that waits, which need not be the one whose answer comes
        self._waiting.append(lambda modern: context.run(then, modern))
        if not self._is_asked:
            self._send()

    @property
    def is_silent(self) -> bool:
        """True if the upstream did not answer so far, and is still asked."""
        return self._silences > 0

    def judge(self, answer: Message) -> bool | None:
        """The verdict on an answer to `server/discover`; what it names is noted."""
        modern = verdict(answer)
        if modern is False:
            named = [str(version) for version in _named(answer) if version in protocol.HANDSHAKE_VERSIONS]
            self.supported = named or protocol.HANDSHAKE_VERSIONS
        return modern

    def note_silence(self) -> None:
        """The upstream did not answer a `server/discover` in time."""
        if not self._is_asked:
            self._silences = (self._silences + 1) % (_MAX_SILENCES + 1)
            if self.is_silent:
                self._send()

    def _send(self) -> None:
        self._is_asked = True
        handle = partial(NullServerMessageHandler().unsolicited, self._link)
        request = ProxiedRequest(probe(b'"riglm-probe"'), NOWHERE, on_reply=self._answered, on_server_message=handle)
        request.send(self._link)

    def _answered(self, exchange: ProxiedRequest, message: Message) -> Message:
        modern: bool | None = None
        self._is_asked = False
        if exchange.failure is ErrorKind.TIMEOUT and self._silence_tells:
            self.note_silence()
            modern = False
        else:
            self._silences = 0
            if exchange.failure in (None, ErrorKind.PROTOCOL):
                modern = self.judge(message) or False
                self._upstream.learned(ProtocolEra.MODERN, supported=modern)
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(modern)
        return message


class SingleServerModernHandler(FilteringModernHandler, NullServerMessageHandler):
    """Passes each request on by itself; shared by all clients with the same rights."""

    def __init__(
        self,
        services: RequestServices,
        upstream: UpstreamPort,
        showing: FilterMiddleware | None = None,
        access: str = "",
    ) -> None:
        super().__init__(services, showing, access)
        self._upstream = upstream
        self._link = upstream.stateless(self)
        self._probe = EraProbe(upstream, self._link)

    def name_patterns(self, tool: str) -> tuple[str, ...]:
        return (tool,)

    def accept(
        self,
        message: Message,
        envelope: RequestEnvelope,
        sink: ClientResponseSink,
        headers: Mapping[bytes, bytes] = NO_HEADERS,
        session: Session | None = None,
    ) -> ProxiedRequest:
        exchange = ProxiedRequest(message, sink, headers=headers, session=session)
        known = self._upstream.supports(ProtocolEra.MODERN)
        if known:
            self._forward(exchange)
        elif known is None and message.method == "server/discover":
            exchange.on_reply = lambda exchange, reply: self._discovered(exchange, reply, envelope)
            exchange.send(self._link)
        elif known is None:
            self._probe.ask(lambda modern: self._decided(modern, exchange, envelope))
        else:
            exchange.replied(self._refusal(exchange, envelope), 400)
        return exchange

    def notify_upstream(self, message: Message) -> None:
        if message.method != "notifications/cancelled":  # it would name a request of another client there
            self._link.send(message)

    def cancel_upstream(self, exchange: ProxiedRequest, notice: Message | None) -> None:
        self._link.cancel(exchange, notice)

    def listed_schema(self, tool: str) -> bytes | None:
        schema = self._services.catalogs.input_schema(self._upstream.spec.name, tool)
        return bytes(schema) if schema else None

    def _decided(self, modern: bool | None, exchange: ProxiedRequest, envelope: RequestEnvelope) -> None:
        if exchange.done:
            return
        if modern is False:
            exchange.replied(self._refusal(exchange, envelope), 400)
        else:
            self._services.waited()
            self._forward(exchange)

    def _forward(self, exchange: ProxiedRequest) -> None:
        message, session = exchange.message, exchange.session
        if session is not None and message.method == "tools/call":
            if self._services.pins.needs_comparison(self._link):
                params = jsonrpc.join_object({"_meta": jsonrpc.members(message.params).get("_meta", b"{}")})
                self._services.known_catalogs.compare_first(self._link, params, partial(self._call, exchange, session))
            else:
                self._call(exchange, session)
            return
        if session is not None and message.method == "tools/list":
            exchange.on_reply = partial(self._services.listed, session, self._link, self._link.tools_version)
        exchange.send(self._link)

    def _call(self, exchange: ProxiedRequest, session: Session) -> None:
        """Record a call, and send it unless it is denied."""
        if exchange.done:
            return
        message, upstream = exchange.message, self._upstream.spec.name
        tool = tool_name(request_params.read(message)) or ""
        known = tool in self._services.catalogs.of(upstream).by_name
        is_unlisted = None if known else partial(self._services.catalogs.lacks, upstream, tool)
        exchange.call, refused = self._services.start_call(
            session, message, upstream, (tool,) if tool else (), link=self._link, known=known, is_unlisted=is_unlisted
        )
        if refused is None:
            exchange.send(self._link)
        else:
            exchange.replied(refused)

    def _discovered(self, exchange: ProxiedRequest, reply: Message, envelope: RequestEnvelope) -> Message | None:
        if exchange.failure is ErrorKind.UNAVAILABLE:
            return reply
        if exchange.failure is ErrorKind.TIMEOUT:
            self._probe.note_silence()
            return self._refusal(exchange, envelope)
        modern = self._probe.judge(reply)
        if modern is not None:
            self._upstream.learned(ProtocolEra.MODERN, supported=modern)
            if jsonrpc.error_code(reply) != jsonrpc.METHOD_NOT_FOUND:
                return reply
            self._judged(modern, exchange, reply, envelope)
            return None
        self._probe.ask(lambda modern: self._judged(modern, exchange, reply, envelope))
        return None

    def _judged(self, modern: bool | None, exchange: ProxiedRequest, reply: Message, envelope: RequestEnvelope) -> None:
        if modern is False:
            exchange.replied(self._refusal(exchange, envelope), 400)
        else:
            exchange.replied(reply)

    def _refusal(self, exchange: ProxiedRequest, envelope: RequestEnvelope) -> Message:
        supported, is_silent = self._probe.supported, self._probe.is_silent
        return refusal(exchange.message, envelope.version, supported, is_silent=is_silent)
