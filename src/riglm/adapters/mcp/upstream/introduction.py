"""What a server was sent by its client and a replacement process must be sent again."""

import asyncio
from typing import Final

from riglm.adapters.mcp.upstream.channel import Channel
from riglm.domain import jsonrpc
from riglm.domain.errors import UpstreamUnavailable
from riglm.domain.jsonrpc import Message, Raw

_AGAIN: Final = b'"riglm-again"'
_REPEATED: Final = frozenset({"logging/setLevel", "resources/subscribe"})
NOTED: Final = frozenset({"initialize", "resources/unsubscribe"}) | _REPEATED
"""Requests whose success is passed to `Introduction.answered`."""


class Introduction:
    """The handshake, the log level and the subscriptions, in the client's own words."""

    def __init__(self) -> None:
        self.result: Raw | None = None
        """The answer to the handshake; None before it came."""
        self._handshake: Message | None = None
        self._repeated: dict[str, Message] = {}
        self._greeted: asyncio.Future[Message] | None = None

    def begin(self) -> None:
        """The client opens a handshake: what was sent before is discarded."""
        self.result = None
        self._handshake = None
        self._repeated.clear()

    def answered(self, asked: Message, answer: Message) -> None:
        """The server answered one of the `NOTED` requests; an error changes nothing."""
        if not answer.result:
            return
        if asked.method == "initialize":
            self._handshake, self.result = asked, answer.result
        elif asked.method in _REPEATED:
            self._repeated[_subject(asked)] = asked
        else:
            self.forget(_subject(asked))

    def forget(self, uri: str) -> None:
        """No client subscribes to this resource any more."""
        self._repeated.pop(uri, None)

    async def repeat(self, channel: Channel, seconds: float) -> None:
        """Send all of it to a new process.

        Raises:
            UpstreamUnavailable: it refuses the handshake.
            TimeoutError: it does not respond to the handshake in time.
        """
        if self._handshake is None:
            return
        self._greeted = asyncio.get_running_loop().create_future()
        channel.write(self._handshake.replace(id=_AGAIN).line)
        answer = await asyncio.wait_for(self._greeted, seconds)
        if not answer.result:
            raise UpstreamUnavailable("restarted and refused the handshake")
        self.result = answer.result
        channel.write(jsonrpc.notification("notifications/initialized").line)
        for message in self._repeated.values():
            channel.write(message.replace(id=_AGAIN).line)

    def heard(self, answer: Message) -> bool:
        """Whether an answer that no client waits for is one to what was repeated."""
        if answer.id != _AGAIN:
            return False
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_result(answer)
        return True


def _subject(message: Message) -> str:
    """What must be repeated about: one resource by its URI, or the log level."""
    return jsonrpc.text(jsonrpc.members(message.params).get("uri")) or ""
