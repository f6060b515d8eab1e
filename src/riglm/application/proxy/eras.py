"""What differs between the two protocol eras in requests and replies; `upstreams` links servers of either.

A request of the handshake era belongs to a connection that was opened by `initialize`. A modern request carries an
envelope in its `_meta`, and belongs to no connection.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from riglm.application.sessions.registry import SessionRegistry
from riglm.application.sessions.session_index import SessionLookupKey
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import ProtocolEra, Session

if TYPE_CHECKING:
    from riglm.application.proxy.request import Request

MAX_TTL_SECONDS: Final = 86_400.0
"""Maximum time in seconds that a list is cached, regardless of the server's `ttlMs`."""
_COMPLETE: Final = Raw(b'"complete"')
_PRIVATE: Final = Raw(b'"private"')


class Era:
    """One era of the protocol."""

    kind: ClassVar[ProtocolEra]
    opening: ClassVar[str]
    """The request that a client opens with."""

    list_fields: ClassVar[Mapping[str, Raw]]
    """The members of a list's result that riglm writes for several servers, in addition to the entries."""

    catalog_seconds: ClassVar[float]
    """Seconds for which meta-tools use the last catalog, unless a server announces a change."""

    needs_schemas: ClassVar[bool]
    """Whether calls over HTTP need the schema of their tool, for headers that repeat arguments."""

    def identify(self, request: "Request", sessions: SessionRegistry) -> Session:
        """Return the session of a call or a list of tools."""
        raise NotImplementedError

    def place_of(self, request: "Request", sessions: SessionRegistry) -> SessionLookupKey | None:
        """Return where the session of a request is found by other processes; None if it stays with this one."""
        raise NotImplementedError

    def own_params(self, request: "Request | None") -> bytes:
        """Return the params of a list that riglm requests itself, for a request of a client if there is one."""
        raise NotImplementedError

    def complete(self, result: bytes) -> bytes:
        """Return the raw result of a call as this era requires it."""
        raise NotImplementedError

    def list_members(
        self, fields: Mapping[str, Raw], pages: Sequence[Message], fresh_seconds: float
    ) -> Mapping[str, Raw]:
        """Return the members of a list that riglm wrote from these pages, which stays the same for `fresh_seconds`."""
        raise NotImplementedError

    def announce_tools(self, request: "Request") -> None:
        """Notify the client of a request that its tool list has changed."""
        raise NotImplementedError


class HandshakeEra(Era):
    """Up to revision 2025-11-25."""

    kind = ProtocolEra.HANDSHAKE
    opening = "initialize"
    list_fields: ClassVar[Mapping[str, Raw]] = {}
    catalog_seconds = math.inf
    needs_schemas = False

    def identify(self, request: "Request", sessions: SessionRegistry) -> Session:
        connection = request.handshake
        assert connection is not None  # noqa: S101  # only connections carry this era
        is_call = request.method == "tools/call"
        session = connection.session if is_call else connection.listed_session
        if request.params.meta:
            session = sessions.of_call(session, request.caller, request.params.meta)
        if is_call:
            connection.latest_session = session
        return session

    def place_of(self, request: "Request", sessions: SessionRegistry) -> SessionLookupKey | None:
        return sessions.place_of_call(request.caller, request.params.meta)

    def own_params(self, request: "Request | None") -> bytes:
        return b"{}"

    def complete(self, result: bytes) -> bytes:
        return result

    def list_members(
        self, fields: Mapping[str, Raw], pages: Sequence[Message], fresh_seconds: float
    ) -> Mapping[str, Raw]:
        return fields

    def announce_tools(self, request: "Request") -> None:
        if request.handshake is not None:
            request.handshake.tool_changes.announce(request.sink)


class ModernEra(Era):
    """Revision 2026-07-28."""

    kind = ProtocolEra.MODERN
    opening = "server/discover"
    list_fields: ClassVar[Mapping[str, Raw]] = {"resultType": _COMPLETE, "ttlMs": Raw(b"0"), "cacheScope": _PRIVATE}
    catalog_seconds = 60.0
    needs_schemas = True

    def identify(self, request: "Request", sessions: SessionRegistry) -> Session:
        envelope = request.envelope
        assert envelope is not None  # noqa: S101  # it makes the request a modern one
        starts = request.method == "tools/list" and not request.has_cursor
        version = envelope.version or ""
        return sessions.of_request(request.caller, envelope.client, version, envelope.meta, starts=starts)

    def place_of(self, request: "Request", sessions: SessionRegistry) -> SessionLookupKey | None:
        envelope = request.envelope
        return None if envelope is None else sessions.place_of_request(request.caller, envelope.client, envelope.meta)

    def own_params(self, request: "Request | None") -> bytes:
        if request is None or request.envelope is None:
            return jsonrpc.encode({"_meta": protocol.OWN_ENVELOPE})
        meta = jsonrpc.members(request.envelope.meta)
        meta.pop("progressToken", None)
        return b'{"_meta":%b}' % jsonrpc.join_object(meta)

    def complete(self, result: bytes) -> bytes:
        fields = jsonrpc.members(result)
        return result if "resultType" in fields else jsonrpc.join_object({"resultType": _COMPLETE, **fields})

    def list_members(
        self, fields: Mapping[str, Raw], pages: Sequence[Message], fresh_seconds: float
    ) -> Mapping[str, Raw]:
        ttl_ms = int(min(_shortest_ttl(pages), max(0.0, fresh_seconds) * 1000))
        return {**fields, "ttlMs": Raw(b"%d" % ttl_ms), "cacheScope": _PRIVATE}  # it depends on the caller

    def announce_tools(self, request: "Request") -> None:
        request.upstreams.subscriptions.tools_changed(request.session)


HANDSHAKE: Final = HandshakeEra()
MODERN: Final = ModernEra()


def _shortest_ttl(pages: Sequence[Message]) -> float:
    """Return the milliseconds for which all pages of a list may be cached; 0 if one of them gives none."""
    ttls = [jsonrpc.plain(jsonrpc.members(page.result).get("ttlMs", b"0")) for page in pages]
    longest = MAX_TTL_SECONDS * 1000
    return min((min(ttl, longest) if isinstance(ttl, int | float) and ttl > 0 else 0.0 for ttl in ttls), default=0.0)
