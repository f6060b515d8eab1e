"""Server requests of several upstreams on their way to one client: each gets an id that no other has."""

from typing import Final, NamedTuple

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import UpstreamLink

MOST_OPEN: Final = 1000
"""Requests that a client leaves unanswered beyond this many are forgotten, the oldest first."""

_TOKEN: Final = ("_meta", "progressToken")


class _Errand(NamedTuple):
    link: UpstreamLink
    id: bytes
    token: bytes


class Errands:
    """Gives requests of servers, and their progress tokens, new ids, and brings the client's answers home."""

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[bytes, _Errand] = {}

    def __len__(self) -> int:
        return len(self._open)

    def outward(self, link: UpstreamLink, message: Message) -> Message | None:
        """A message of a server as the client gets it; None for one about a request that the client does not have."""
        if message.id is not None:
            return self._asked(link, message, message.id)
        if message.method == "notifications/cancelled":
            return self._withdrawn(link, message)
        return message

    def homeward(self, message: Message) -> tuple[UpstreamLink, Message] | None:
        """The link that an answer of the client belongs to, and the answer under the id that it knows."""
        errand = self._open.pop(jsonrpc.id_key(message.id), None) if message.id is not None else None
        return (errand.link, message.replace(id=errand.id)) if errand is not None else None

    def progressed(self, message: Message) -> tuple[UpstreamLink, Message] | None:
        """The link whose request a progress notification of the client is about, and the notice as that knows it."""
        token = bytes(jsonrpc.members(message.params).get("progressToken", b""))
        errand = self._open.get(jsonrpc.id_key(token)) if token else None
        if errand is None or not errand.token:
            return None
        params = jsonrpc.with_member(message.params, ("progressToken",), errand.token)
        return errand.link, message.replace(params=params)

    def _asked(self, link: UpstreamLink, message: Message, theirs: bytes) -> Message:
        self._count += 1
        own = b'"%b:%d"' % (jsonrpc.encode(link.spec.name)[1:-1], self._count)
        meta = jsonrpc.members(message.params).get("_meta") if b'"progressToken"' in message.line else None
        token = bytes(jsonrpc.members(meta).get("progressToken", b"")) if meta else b""
        if len(self._open) >= MOST_OPEN:
            del self._open[next(iter(self._open))]
        self._open[own] = _Errand(link, theirs, token)
        if token:
            return message.replace(id=own, params=jsonrpc.with_member(message.params, _TOKEN, own))
        return message.replace(id=own)

    def _withdrawn(self, link: UpstreamLink, message: Message) -> Message | None:
        named = bytes(jsonrpc.members(message.params).get("requestId", b"")) or b"null"
        key = jsonrpc.id_key(named)
        for own, errand in self._open.items():
            if errand.link is link and jsonrpc.id_key(errand.id) == key:
                del self._open[own]
                return message.replace(params=jsonrpc.with_member(message.params, ("requestId",), own))
        return None
