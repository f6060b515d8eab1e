"""Server requests of several upstreams on their way to one client: each gets an id that no other has."""

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import UpstreamLink


class Errands:
    """Gives requests of servers new ids, and brings the client's answers home."""

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[bytes, tuple[UpstreamLink, bytes]] = {}
        self._tokens: dict[bytes, UpstreamLink] = {}

    def outward(self, link: UpstreamLink, message: Message) -> Message:
        """A message of a server as the client gets it."""
        if message.id is not None:
            self._count += 1
            own = b'"%b:%d"' % (jsonrpc.encode(link.spec.name)[1:-1], self._count)
            self._open[own] = (link, message.id)
            meta = jsonrpc.members(message.params).get("_meta") if b'"progressToken"' in message.line else None
            if meta:
                self._tokens[bytes(jsonrpc.members(meta).get("progressToken", b""))] = link
            return message.replace(id=own)
        if message.method == "notifications/cancelled":
            named = bytes(jsonrpc.members(message.params).get("requestId", b""))
            for own, (owner, theirs) in self._open.items():
                if owner is link and theirs == named:
                    return message.replace(params=jsonrpc.with_member(message.params, ("requestId",), own))
        return message

    def homeward(self, message: Message) -> tuple[UpstreamLink, Message] | None:
        """The link that an answer of the client belongs to, and the answer under the id that it knows."""
        found = self._open.pop(jsonrpc.id_key(message.id), None) if message.id is not None else None
        if found is None:
            return None
        link, theirs = found
        return link, message.replace(id=theirs)

    def owner_of_progress(self, message: Message) -> UpstreamLink | None:
        """The link whose request a progress notification of the client is about."""
        return self._tokens.get(bytes(jsonrpc.members(message.params).get("progressToken", b"")))
