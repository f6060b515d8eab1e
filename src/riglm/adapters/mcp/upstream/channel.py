"""A channel: a two-way line of whole messages to one server, over pipes or over HTTP with SSE."""

from collections.abc import Awaitable, Callable
from typing import Protocol


class Channel(Protocol):
    """Carries whole messages to one server."""

    def write(self, line: bytes) -> None:
        """Send one message; a channel that closed ignores it.

        Raises:
            UpstreamUnavailable: the server does not take what waits for it already; this message is not kept.
        """

    async def close(self) -> None:
        """Close, and end what holds the other side."""


class Receiver(Protocol):
    """Receives what comes back over a channel."""

    def heard(self, line: bytes) -> None:
        """One message of the server."""

    def missed(self, words: str, key: bytes | None = None) -> None:
        """A response was lost because of `words`: that to the request with this key, or to any if there is none."""

    def ended(self, words: str) -> None:
        """The channel is closed, for the reason in `words`. Called once, unless riglm closed it."""


Opener = Callable[[Receiver], Awaitable[Channel]]
"""Opens a channel; raises `UpstreamUnavailable` when that fails."""
