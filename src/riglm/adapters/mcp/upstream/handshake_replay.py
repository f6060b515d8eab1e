"""The messages of a client that a server gets again after it was restarted or forgot the client's session."""

import functools
from collections.abc import Iterator
from typing import Final

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message

REPLAY_ID: Final = b'"riglm-again"'
"""The id of requests that are repeated."""

_REPEATED: Final = frozenset({"logging/setLevel", "resources/subscribe"})
NOTED: Final = frozenset({"initialize", "resources/unsubscribe"}) | _REPEATED
"""Requests whose responses are noted."""

_MAX_SHARED_BYTES: Final = 2048
"""A longer handshake is rare, and not worth to be shared."""


class HandshakeReplay:
    """The handshake, the log level and the subscriptions, in the client's own words.

    There may be one for each of very many idle clients, so it keeps little.
    """

    __slots__ = ("_handshake", "_repeated")

    def __init__(self) -> None:
        self._handshake = b""
        self._repeated: dict[str, Message] | None = None

    @property
    def is_empty(self) -> bool:
        """True if no server has accepted the client yet."""
        return not self._handshake

    def begin(self) -> None:
        """Discard what was noted: the client begins a handshake."""
        self._handshake = b""
        self._repeated = None

    def note(self, asked: Message, answer: Message) -> None:
        """Note a request that a server accepted; an error changes nothing."""
        if asked.method not in NOTED or not answer.result:
            return
        if asked.method == "initialize":
            is_short = len(asked.line) <= _MAX_SHARED_BYTES
            self._handshake = _share(asked.line) if is_short else asked.line
        elif asked.method in _REPEATED:
            self._repeated = self._repeated or {}
            self._repeated[_subject(asked)] = asked
        else:
            self.forget(_subject(asked))

    def forget(self, uri: str) -> None:
        """Note that no client subscribes to this resource any more."""
        if self._repeated is not None:
            self._repeated.pop(uri, None)

    def initialize(self) -> Message:
        """Return the `initialize` of the client."""
        return jsonrpc.decode(self._handshake).replace(id=REPLAY_ID)

    def messages(self) -> Iterator[Message]:
        """Return what follows the response to `initialize`."""
        yield jsonrpc.notification("notifications/initialized")
        for message in tuple((self._repeated or {}).values()):
            yield message.replace(id=REPLAY_ID)


@functools.lru_cache(maxsize=64)
def _share(line: bytes) -> bytes:
    """Return one object for equal handshakes: clients of one kind send the same, and each link keeps its client's."""
    return line


def _subject(message: Message) -> str:
    """Return what must be repeated about: one resource by its URI, or the log level."""
    return jsonrpc.text(jsonrpc.members(message.params).get("uri")) or ""
