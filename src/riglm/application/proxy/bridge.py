"""Bridge for handshake clients to an upstream that supports only the modern era."""

import itertools
from collections.abc import Mapping
from typing import Final

from riglm.application.proxy.bridge_subscription import Subscription
from riglm.application.proxy.era_negotiation import EraProbe
from riglm.application.proxy.round_trips import BridgedRequest, PendingQuestions, Translation
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import ProtocolEra
from riglm.ports.upstream import (
    NullServerMessageHandler,
    ServerMessageHandler,
    UpstreamLink,
    UpstreamPort,
    UpstreamRequest,
)

_NOT_KNOWN: Final = frozenset({jsonrpc.METHOD_NOT_FOUND, jsonrpc.UNSUPPORTED_PROTOCOL_VERSION})
_GONE_NOTIFICATIONS: Final = frozenset(
    {
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/roots/list_changed",
    }
)
"""Methods that the modern era removed or that concern only riglm."""
_DISCOVERY_S_OWN: Final = frozenset({"resultType", "supportedVersions", "ttlMs", "cacheScope", "_meta"})


class BridgeLink(UpstreamLink):
    """A handshake link that sends modern requests."""

    def __init__(self, upstream: UpstreamPort, message_handler: ServerMessageHandler) -> None:
        """A link that has said nothing yet."""
        self.spec = upstream.spec
        self._link = upstream.stateless(NullServerMessageHandler())
        self._envelope = _envelope({})
        self._questions = PendingQuestions()
        self._retry_ids = itertools.count(1)
        self._requests: dict[int, BridgedRequest] = {}
        self._subscription = Subscription(
            self._link, self._enveloped, lambda said: message_handler.unsolicited(self, said)
        )

    @property
    def tools_version(self) -> int:
        return self._link.tools_version

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        match message.method:
            case "initialize":
                self._initialize(message, reply)
            case "ping":
                reply.replied(jsonrpc.result(message.id or b"null", b"{}"))
            case "logging/setLevel":
                level = jsonrpc.members(message.params).get("level")
                if level is not None:
                    self._envelope[protocol.META_LOG_LEVEL] = level
                reply.replied(jsonrpc.result(message.id or b"null", b"{}"))
            case "resources/subscribe":
                self._subscription.subscribe(reply)
            case "resources/unsubscribe":
                self._subscription.unsubscribe(reply)
            case _:
                self._forward(message.method or "", message.params, reply, _completed)

    def send(self, message: Message) -> None:
        if message.is_response:
            self._questions.answered(message)
        elif message.method not in _GONE_NOTIFICATIONS:
            self._link.send(message)

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        request = self._requests.get(id(reply))
        if request is not None:
            request.cancel(notice)

    def listen(self, *, listening: bool) -> None:
        self._subscription.listen(listening=listening)

    async def close(self) -> None:
        self._subscription.close()
        for request in list(self._requests.values()):
            request.cancel(None)

    def _initialize(self, message: Message, reply: UpstreamRequest) -> None:
        given = jsonrpc.members(message.params)
        self._envelope = _envelope(given)
        wanted = jsonrpc.text(given.get("protocolVersion"))
        version = wanted if wanted in protocol.HANDSHAKE_VERSIONS else protocol.HANDSHAKE_VERSIONS[-1]

        def greeting(fields: dict[str, Raw]) -> bytes:
            self._subscription.offer(fields.get("capabilities", b"{}"))
            return _greeting(fields, version or "", self.spec.name)

        self._forward("server/discover", b"", reply, greeting)

    def _forward(self, method: str, params: Raw | bytes, reply: UpstreamRequest, translate: Translation) -> None:
        request = BridgedRequest(
            jsonrpc.request(reply.message.id or b"null", method, self._enveloped(params)),
            reply,
            link=self._link,
            questions=self._questions,
            retry_ids=self._retry_ids,
            translate=translate,
            on_end=self._ended,
        )
        self._requests[id(reply)] = request
        request.start()

    def _ended(self, request: BridgedRequest) -> None:
        self._requests.pop(id(request.client), None)

    def _enveloped(self, params: Raw | bytes) -> bytes:
        """The params with the client's envelope in their `_meta`, and all else as it was."""
        if bytes(params).startswith(b"["):
            return bytes(params)  # there is no place for an envelope: the upstream answers with an error
        fields = jsonrpc.members(params)
        meta = jsonrpc.members(fields.get("_meta", b"{}"))
        fields["_meta"] = Raw(jsonrpc.join_object({**meta, **self._envelope}))
        return jsonrpc.join_object(fields)


async def find_bridge(
    upstream: UpstreamPort, message_handler: ServerMessageHandler, refusal: Message
) -> BridgeLink | None:
    """Return a bridge to a server that replied to `initialize` by `refusal`; None unless it is a modern server."""
    modern = upstream.supports(ProtocolEra.MODERN)
    if not modern:
        link = upstream.stateless(NullServerMessageHandler())
        modern = await EraProbe(upstream, link, silence_counts=False).ask()
    if modern and jsonrpc.error_code(refusal) in _NOT_KNOWN:
        upstream.learned(ProtocolEra.HANDSHAKE, supported=False)
    return BridgeLink(upstream, message_handler) if modern else None


def _envelope(initialize: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return the envelope of every request, from the params of the client's `initialize`."""
    envelope = {
        protocol.META_VERSION: Raw(jsonrpc.encode(protocol.MODERN_VERSIONS[-1])),
        protocol.META_CAPABILITIES: initialize.get("capabilities", Raw(b"{}")),
    }
    if "clientInfo" in initialize:
        envelope[protocol.META_CLIENT] = initialize["clientInfo"]
    return envelope


def _greeting(discovered: dict[str, Raw], version: str, name: str) -> bytes:
    """Return the result of `initialize` from that of `server/discover`; `name` is used if the server sent none."""
    meta = jsonrpc.members(discovered.get("_meta", b"{}"))
    info = meta.pop(protocol.META_SERVER, jsonrpc.encode({"name": name, "version": "unknown"}))
    kept = {key: raw for key, raw in discovered.items() if key not in _DISCOVERY_S_OWN}
    if meta:
        kept["_meta"] = Raw(jsonrpc.join_object(meta))
    return jsonrpc.join_object(
        {"protocolVersion": jsonrpc.encode(version), "capabilities": b"{}", "serverInfo": info, **kept}
    )


def _completed(fields: dict[str, Raw]) -> bytes:
    """A result without the word that it is complete; other words belong to extensions that the client knows."""
    if jsonrpc.text(fields.get("resultType")) == "complete":
        del fields["resultType"]
    return jsonrpc.join_object(fields)
