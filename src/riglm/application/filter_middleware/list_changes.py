"""Notifications to handshake clients that their tool list has changed."""

from collections.abc import Callable

from riglm.application.forwarding.notifier import HeldMessages
from riglm.domain import jsonrpc, protocol
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.protocol import ACKNOWLEDGED, TOOLS_CHANGED
from riglm.domain.session import Session
from riglm.ports.downstream import ClientChannel, ClientResponseSink, ForwardingSink, InFlightRequest
from riglm.ports.upstream import EventPosition


class ListChangeNotifier:
    """Says it once, until the client has listed again."""

    __slots__ = ("_held", "_told")

    def __init__(self, channel: ClientChannel) -> None:
        self._held = HeldMessages(channel)
        self._told = False

    def changed(self, sink: ClientResponseSink | None = None) -> None:
        """Send the notification on an open stream, or over the stream of a request, or when the next stream opens."""
        if self._told:
            return
        self._told = True
        news = jsonrpc.notification(TOOLS_CHANGED)
        if self._held.push(news):
            return
        if sink is not None:
            sink.related(news)
        else:
            self._held.keep(news)

    def listed(self) -> None:
        """The client gets the list as it is now."""
        self._told = False

    def listening(self) -> None:
        """A stream is open."""
        self._held.flush()


class ObservedChannel(ClientChannel):
    """Forwards messages to a client and observes list-changed notifications of the upstream."""

    __slots__ = ("_channel", "_on_change")

    def __init__(self, channel: ClientChannel, on_change: Callable[[], None]) -> None:
        self._channel = channel
        self._on_change = on_change

    def push(self, message: Message, event: EventPosition | None = None) -> bool:
        if message.method == TOOLS_CHANGED:
            self._on_change()
        return self._channel.push(message, event)


_WANTED = ("notifications", "toolsListChanged")


class ToolListSubscription(ForwardingSink):
    """A `subscriptions/listen` to which riglm adds notifications once the upstream has acknowledged it."""

    def __init__(self, session: Session, asked: Message, sink: ClientResponseSink) -> None:
        super().__init__(sink)
        self.session = session
        self.in_flight: InFlightRequest | None = None
        self._asked = asked
        wanted = jsonrpc.members(jsonrpc.members(asked.params).get(_WANTED[0], b"{}"))
        self._wants_tools = bytes(wanted.get(_WANTED[1], b"")) == b"true"
        self._granted = False

    @property
    def over(self) -> bool:
        """True if nothing more can be sent."""
        return self.in_flight is not None and self.in_flight.done

    def notify(self) -> None:
        """Send a notification that the tool list has changed."""
        if self._granted and not self.over:
            stamp = jsonrpc.join_object({protocol.META_SUBSCRIPTION: self._asked.id or b"null"})
            self._sink.related(jsonrpc.notification(TOOLS_CHANGED, b'{"_meta":%b}' % stamp))

    def related(self, message: Message, event: EventPosition | None = None) -> None:
        if message.method == ACKNOWLEDGED and self._wants_tools:
            self._granted = True
            message = message.replace(params=jsonrpc.with_member(message.params, _WANTED, b"true"))
        self._sink.related(message, event)


class ToolListSubscriptions:
    """All that listen now."""

    def __init__(self) -> None:
        self._open: list[ToolListSubscription] = []
        self.notify_others: Callable[[str], None] = lambda _: None
        """Called with the client whose list changed, to notify its subscriptions in other processes."""

    def add(self, session: Session, asked: Message, sink: ClientResponseSink) -> ToolListSubscription:
        """A new one; those that are over are forgotten."""
        self._open = [listener for listener in self._open if not listener.over]
        listener = ToolListSubscription(session, asked, sink)
        self._open.append(listener)
        return listener

    def changed(self, session: Session) -> None:
        """Notify all subscriptions of a session's client, since its calls may name another session."""
        self.heard(session.client_id)
        self.notify_others(session.client_id)

    def heard(self, client_id: str) -> None:
        """The list of a client changed, here or at another process."""
        for listener in self._open:
            if listener.session.client_id == client_id:
                listener.notify()

    def follow(self, is_another: Callable[[Session], bool]) -> None:
        """Notify the subscriptions of clients whose list has changed."""
        for listener in self._open:
            if is_another(listener.session):
                listener.notify()


_PATH = ("capabilities", "tools", "listChanged")


def announcing(answer: Message) -> Message:
    """The answer to `initialize` or `server/discover`, with the word that changes of the list of tools are announced.

    An upstream without tools stays one.
    """
    if _tools(answer) is None or has_announced(answer):
        return answer
    return answer.replace(result=jsonrpc.with_member(answer.result, _PATH, b"true"))


def offering(answer: Message) -> Message:
    """The answer with the word that there are tools: where riglm has one for every list, there is always one."""
    if not answer.result or "capabilities" not in jsonrpc.members(answer.result) or _tools(answer) is not None:
        return answer
    return answer.replace(result=jsonrpc.with_member(answer.result, _PATH[:-1], b"{}"))


def has_announced(answer: Message) -> bool:
    """Return True if an acknowledgment grants notifications of tool list changes."""
    tools = _tools(answer)
    return tools is not None and bytes(jsonrpc.members(tools).get("listChanged", b"")) == b"true"


def _tools(answer: Message) -> Raw | None:
    return jsonrpc.members(jsonrpc.members(answer.result).get("capabilities", b"{}")).get("tools")
