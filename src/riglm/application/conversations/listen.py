"""One `subscriptions/listen` of riglm's own, and the wishes of a client that wait for it."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, Protocol

from riglm.application.conversations.rounds import error_for
from riglm.domain import jsonrpc
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import NO_HEADERS
from riglm.ports.upstream import EventMark, Reply

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

_ENDED: Final = jsonrpc.error(None, jsonrpc.INTERNAL_ERROR, "the upstream ended the subscription")


class Change:
    """A client's wish to be told of a resource, or no longer, that waits to be granted."""

    def __init__(self, reply: Reply, uri: str | None) -> None:
        """`uri` is the resource that the client subscribes to, None when it unsubscribes."""
        self.reply = reply
        self.uri = uri

    def granted(self) -> None:
        """The upstream knows."""
        self.reply.replied(jsonrpc.result(self.reply.message.id or b"null", b"{}"))

    def refused(self, error: Message) -> None:
        """The upstream does not do it, for the reason that an error response gives."""
        self.reply.replied(error_for(self.reply.message, error))


class ListenOwner(Protocol):
    """Who opened a listen."""

    @abstractmethod
    def acknowledged(self, listen: "Listen", message: Message) -> None:
        """The upstream takes a listen up."""

    @abstractmethod
    def told(self, listen: "Listen", message: Message) -> None:
        """The upstream tells something."""

    @abstractmethod
    def ended(self, listen: "Listen", tell: Callable[[Change], None], *, again: bool) -> None:
        """A listen is over, which `tell` says to those who wait for it; `again` when another may fare better."""


class Listen(Reply):
    """One `subscriptions/listen` on its way."""

    headers = NO_HEADERS
    resumable = False

    def __init__(
        self, owner: ListenOwner, message: Message, wanted: bytes, changes: list[Change], opened_at: float
    ) -> None:
        """Asks for `wanted`, which brings `changes` about; `opened_at` by the loop's clock, in seconds."""
        self.message = message
        self.wanted = wanted
        self.changes = changes
        self.opened_at = opened_at
        self._owner = owner

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """The upstream tells something."""
        if message.method == ACKNOWLEDGED:
            self._owner.acknowledged(self, message)
        else:
            self._owner.told(self, message)

    def primed(self, event: EventMark) -> None:
        """Streams of this era cannot be taken up again."""

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """The upstream will tell nothing more, or refuses to."""
        error = message if message.error else _ENDED
        again = jsonrpc.error_code(error) == jsonrpc.INTERNAL_ERROR
        self._owner.ended(self, lambda change: change.refused(error), again=again)

    def failed(self, kind: ErrorKind, words: str) -> None:
        """The upstream cannot be reached."""
        again = kind is not ErrorKind.PROTOCOL
        self._owner.ended(self, lambda change: change.reply.failed(kind, words), again=again)

    def interrupted(self) -> None:
        """Only said to whoever can take streams up."""
