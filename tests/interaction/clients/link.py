"""What a raw client needs of a transport."""

from typing import Protocol


class Receiver(Protocol):
    """Takes in what comes from the server's side."""

    def received(self, raw: bytes, stream: object) -> None:
        """A message came in on this stream."""

    def stream_ended(self, stream: object, error: Exception) -> None:
        """Nothing more will come on this stream."""


class Link(Protocol):
    """A transport; one object that stands for a stream is given for each message sent."""

    async def open(self, receiver: Receiver) -> None:
        """Connect."""

    async def send(self, raw: bytes) -> object:
        """Send one message; the stream on which its answer will come."""

    async def abandon(self, stream: object) -> bool:
        """Close the stream of one request; whether the transport has such a thing."""

    async def close(self) -> None:
        """Leave properly and let nothing behind."""
