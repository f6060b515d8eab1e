"""Tells a client of the handshake era that its list of tools is another one now."""

from collections.abc import Callable
from typing import Final

from riglm.application.forwarding.held_back import HeldBack
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import ClientChannel, ReplySink
from riglm.ports.upstream import EventMark

TOOLS_CHANGED: Final = "notifications/tools/list_changed"


class ListNews:
    """Says it once, until the client has listed again."""

    __slots__ = ("_held", "_told")

    def __init__(self, channel: ClientChannel) -> None:
        self._held = HeldBack(channel)
        self._told = False

    def changed(self, sink: ReplySink | None = None) -> None:
        """Tell the client, over the stream of a request if no other one is open, else when one opens."""
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


class OverheardChannel(ClientChannel):
    """Passes on what a client is told, and notices when an upstream says that its tools changed."""

    __slots__ = ("_channel", "_on_change")

    def __init__(self, channel: ClientChannel, on_change: Callable[[], None]) -> None:
        self._channel = channel
        self._on_change = on_change

    def push(self, message: Message, event: EventMark | None = None) -> bool:
        """Hand over a message."""
        if message.method == TOOLS_CHANGED:
            self._on_change()
        return self._channel.push(message, event)
