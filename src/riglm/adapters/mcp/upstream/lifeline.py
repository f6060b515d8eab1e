"""Keeps a channel to an upstream alive: opens it when it is needed, and again after it broke."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from riglm.adapters.mcp.upstream.process import Channel
from riglm.domain.errors import UpstreamUnavailable

_log = logging.getLogger("riglm.upstream")
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 30.0
_WORTH_WAITING: Final = 1.0
_STEADY_SECONDS: Final = 10.0
_MOST_WAITING: Final = 10_000

Opener = Callable[[Callable[[bytes], None], Callable[[str], None]], Awaitable[Channel]]
"""Opens a channel, given what to call with each line and what to call with the reason when it closes."""


class Lifeline:
    """One channel at a time. Nothing is started until something is to be sent."""

    def __init__(
        self,
        name: str,
        opener: Opener,
        *,
        on_line: Callable[[bytes], None],
        on_down: Callable[[str], None],
        on_open: Callable[[Channel, bool], Awaitable[None]] | None = None,
    ) -> None:
        """`on_open` is awaited with a new channel, and whether it replaces a broken one, before anything is sent."""
        self._name = name
        self._opener = opener
        self._on_line = on_line
        self._on_down = on_down
        self._on_open = on_open
        self._channel: Channel | None = None
        self._waiting: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._not_before = 0.0
        self._opened_at = 0.0
        self._opened_before = False
        self._closed = False
        self._reason = ""

    def send(self, line: bytes) -> None:
        """Send a message, opening the channel first if need be; when that is hopeless, `on_down` is called."""
        if self._channel is not None:
            self._channel.write(line)
        elif self._closed:
            self._on_down("the link is closed")
        elif self._task is None and self._not_before - time.monotonic() > _WORTH_WAITING:
            seconds = self._not_before - time.monotonic()
            self._on_down(f"{self._reason}; the next try is in {seconds:.0f} s")
        elif len(self._waiting) >= _MOST_WAITING:
            self._on_down("too many messages wait for it to start")
        else:
            self._waiting.append(line)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._open())

    @property
    def channel(self) -> Channel | None:
        """The open channel."""
        return self._channel

    async def close(self) -> None:
        """Close for good."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _open(self) -> None:
        channel: Channel | None = None
        try:
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            broken = asyncio.get_running_loop().create_future()
            channel = await self._opener(self._on_line, lambda reason: self._lost(broken, reason))
            if self._on_open is not None:
                await self._greet(channel, broken)
            self._ready(channel)
            channel = None
        except (UpstreamUnavailable, TimeoutError) as error:
            self._down(str(error) or "it did not answer the handshake in time")
        except Exception:  # noqa: BLE001  # whoever waits must be told, whatever went wrong
            _log.exception("opening failed", extra={"upstream": self._name})
            self._down("opening it failed inside riglm; the log says why")
        finally:
            self._task = None
            if channel is not None:
                self._discard(channel)

    async def _greet(self, channel: Channel, broken: asyncio.Future[str]) -> None:
        """Run `on_open`, but not beyond the channel's end."""
        if self._on_open is None:
            return
        greeting = asyncio.ensure_future(self._on_open(channel, self._opened_before))
        try:
            waited: set[asyncio.Future[Any]] = {greeting, broken}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if broken.done():
                raise UpstreamUnavailable(broken.result())
            await greeting
        finally:
            greeting.cancel()

    def _ready(self, channel: Channel) -> None:
        self._channel = channel
        self._opened_before = True
        self._opened_at = time.monotonic()
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            channel.write(line)

    def _lost(self, broken: asyncio.Future[str], reason: str) -> None:
        if self._channel is None:
            if not broken.done():
                broken.set_result(reason)
            return
        channel, self._channel = self._channel, None
        if time.monotonic() - self._opened_at > _STEADY_SECONDS:
            self._failures = 0
        self._discard(channel)
        self._down(reason)

    def _down(self, reason: str) -> None:
        delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        self._not_before = time.monotonic() + delay * random.uniform(0.8, 1.2)  # noqa: S311  # spreads restarts
        self._reason = reason
        self._waiting.clear()
        if not self._closed:
            _log.warning("upstream down", extra={"upstream": self._name, "reason": reason})
            self._on_down(reason)

    def _discard(self, channel: Channel) -> None:
        task = asyncio.get_running_loop().create_task(channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
