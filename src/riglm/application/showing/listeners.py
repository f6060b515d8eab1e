"""Clients of the modern era that want to hear when a list of tools changes, where the list may change for them."""

from collections.abc import Callable

from riglm.application.conversations.listen import ACKNOWLEDGED
from riglm.application.showing.list_news import TOOLS_CHANGED
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message
from riglm.domain.session import Session
from riglm.ports.downstream import ReplySink, Underway
from riglm.ports.upstream import EventMark

_WANTED = ("notifications", "toolsListChanged")


class Listener(ReplySink):
    """One `subscriptions/listen`, to which riglm adds its own changes once the upstream took it up."""

    def __init__(self, session: Session, asked: Message, sink: ReplySink) -> None:
        """A listen that is about to be passed on."""
        self.session = session
        self.underway: Underway | None = None
        self._asked = asked
        self._sink = sink
        wanted = jsonrpc.members(jsonrpc.members(asked.params).get(_WANTED[0], b"{}"))
        self._wants_tools = bytes(wanted.get(_WANTED[1], b"")) == b"true"
        self._granted = False

    @property
    def over(self) -> bool:
        """Whether nothing more can be told."""
        return self.underway is not None and self.underway.done

    def tell(self) -> None:
        """Tell that the list of tools is another one now."""
        if self._granted and not self.over:
            stamp = jsonrpc.join_object({protocol.META_SUBSCRIPTION: self._asked.id or b"null"})
            self._sink.related(jsonrpc.notification(TOOLS_CHANGED, b'{"_meta":%b}' % stamp))

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """Pass it on; that tools are listened to is granted by riglm."""
        if message.method == ACKNOWLEDGED and self._wants_tools:
            self._granted = True
            message = message.replace(params=jsonrpc.with_member(message.params, _WANTED, b"true"))
        self._sink.related(message, event)

    def primed(self, event: EventMark) -> None:
        """Pass it on."""
        self._sink.primed(event)

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """Pass it on."""
        self._sink.replied(message, status, event)

    def interrupted(self) -> None:
        """Pass it on."""
        self._sink.interrupted()


class Listeners:
    """All that listen now."""

    def __init__(self) -> None:
        self._open: list[Listener] = []
        self.tell_others: Callable[[str], None] = lambda _: None
        """Is told the client whose list changed, for its listeners at other processes."""

    def add(self, session: Session, asked: Message, sink: ReplySink) -> Listener:
        """A new one; those that are over are forgotten."""
        self._open = [listener for listener in self._open if not listener.over]
        listener = Listener(session, asked, sink)
        self._open.append(listener)
        return listener

    def changed(self, session: Session) -> None:
        """The list of a session changed: all listeners of its client are told, since calls may name another session."""
        self.heard(session.client_id)
        self.tell_others(session.client_id)

    def heard(self, client_id: str) -> None:
        """The list of a client changed, here or at another process."""
        for listener in self._open:
            if listener.session.client_id == client_id:
                listener.tell()

    def follow(self, is_another: Callable[[Session], bool]) -> None:
        """Lists may be others now: those are told whose list is."""
        for listener in self._open:
            if is_another(listener.session):
                listener.tell()
