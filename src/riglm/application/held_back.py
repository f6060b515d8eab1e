"""Messages that wait for a client to listen."""

from collections import deque
from typing import Final

from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import ClientChannel
from riglm.ports.upstream import EventMark

MOST_HELD_BACK: Final = 256
"""So many messages wait for a client that has no open stream; older ones are dropped first."""


class HeldBack:
    """Messages for a client that has no open stream at the moment."""

    def __init__(self, channel: ClientChannel) -> None:
        self._channel = channel
        self._waiting: deque[tuple[Message, EventMark | None]] = deque(maxlen=MOST_HELD_BACK)

    def push(self, message: Message, event: EventMark | None = None) -> bool:
        """Hand a message over now if a stream is open."""
        return self._channel.push(message, event)

    def keep(self, message: Message, event: EventMark | None = None) -> None:
        """Keep a message until a stream opens."""
        self._waiting.append((message, event))

    def flush(self) -> None:
        """Hand over what was kept."""
        while self._waiting and self._channel.push(*self._waiting[0]):
            self._waiting.popleft()
