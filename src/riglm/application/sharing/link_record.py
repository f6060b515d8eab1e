"""A connection of the handshake era, as another process needs it to go on with it."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

import msgspec

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Malformed, Message

REPEATED: Final = frozenset({"logging/setLevel", "resources/subscribe"})
"""What a client told a server that another one in its place must be told too."""

MOST_TOLD: Final = 1_000
"""A client that told more has to tell it again at another process."""


class LinkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a connection.

    `principal` is a keyed hash. `handshake` and `told` are requests in the client's own words, `tickets` name the
    sessions that the servers gave, by server. One that `ended` is kept for a while, so that nobody goes on with it.
    """

    principal: str
    session: UUID
    handshake: str
    told: dict[str, str] = {}
    tickets: dict[str, bytes] = {}
    ended: bool = False

    def encoded(self) -> bytes:
        """As bytes."""
        return msgspec.json.encode(self)

    def noted(self, asked: Message) -> "LinkRecord":
        """With what the client told by a request that was granted."""
        if asked.method not in REPEATED and asked.method != "resources/unsubscribe":
            return self
        subject = jsonrpc.text(jsonrpc.members(asked.params).get("uri")) or ""
        told = {name: line for name, line in self.told.items() if name != subject}
        if asked.method in REPEATED and len(told) < MOST_TOLD:
            told[subject] = asked.line.decode()
        return msgspec.structs.replace(self, told=told)

    def ticketed(self, tickets: Mapping[str, bytes]) -> "LinkRecord":
        """With the sessions that servers gave lately."""
        return msgspec.structs.replace(self, tickets={**self.tickets, **tickets})


def decoded(plain: bytes) -> LinkRecord | None:
    """The record that was encoded; None when it is none that riglm would write."""
    try:
        record = msgspec.json.decode(plain, type=LinkRecord)
        messages = [message_of(record.handshake), *map(message_of, record.told.values())]
    except (msgspec.MsgspecError, UnicodeError, Malformed):
        return None
    named = [message.method for message in messages]
    if named[:1] != ["initialize"] or not REPEATED.issuperset(filter(None, named[1:])) or None in named:
        return None
    return record


def message_of(line: str) -> Message:
    """A message that was kept."""
    return jsonrpc.decode(line.encode())
