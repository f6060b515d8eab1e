"""Answers that go out once other processes can know what they changed."""

import asyncio
from typing import Final

from riglm.domain.jsonrpc import Message
from riglm.ports.downstream import Parting, ReplySink
from riglm.ports.upstream import EventMark

_waiting: Final[set["asyncio.Task[None]"]] = set()


class Parted(ReplySink):
    """Holds the answer to one request back until `parting` is through, which is bounded and does not raise."""

    __slots__ = ("_parting", "_sink")

    def __init__(self, sink: ReplySink, parting: Parting) -> None:
        self._sink = sink
        self._parting = parting

    def related(self, message: Message, event: EventMark | None = None) -> None:
        """Pass it on."""
        self._sink.related(message, event)

    def primed(self, event: EventMark) -> None:
        """Pass it on."""
        self._sink.primed(event)

    def replied(self, message: Message, status: int = 200, event: EventMark | None = None) -> None:
        """Pass it on a little later."""
        task = asyncio.get_running_loop().create_task(self._part(message, status, event))
        _waiting.add(task)
        task.add_done_callback(_waiting.discard)

    def interrupted(self) -> None:
        """Pass it on."""
        self._sink.interrupted()

    async def _part(self, message: Message, status: int, event: EventMark | None) -> None:
        try:
            await self._parting(message)
        finally:
            self._sink.replied(message, status, event)
