"""Keeps a channel to a server alive: opens it when it is needed, and again after it broke."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from riglm.adapters.mcp.upstream.channel import MessageChannel, Opener, Receiver
from riglm.adapters.mcp.upstream.health import ChannelHealthTracker
from riglm.domain import protocol
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import LinkState

_log = logging.getLogger("riglm.upstream")
_INITIAL_BACKOFF: Final = 0.1
_MAX_BACKOFF: Final = 30.0
_WORTH_WAITING: Final = 1.0
_STEADY_SECONDS: Final = 10.0
_MAX_WAITING: Final = 10_000
_MAX_WAITING_BYTES: Final = 64 * 1024 * 1024


class ReconnectingChannel:
    """One channel at a time. Nothing is started before something must be sent."""

    def __init__(
        self,
        name: str,
        opener: Opener,
        *,
        on_message: Callable[[Message], None],
        on_missed: Callable[[str, bytes | None], None],
        on_down: Callable[[str], None],
        on_open: Callable[[MessageChannel], Awaitable[None]] | None = None,
        condition: ChannelHealthTracker | None = None,
    ) -> None:
        """A line to the server called `name`.

        Args:
            name: for the log.
            opener: opens each channel.
            on_message: gets each message of the server.
            on_missed: called when a response was lost, as `Receiver.missed` is.
            on_down: called with the reason when the channel is closed, and with it everything sent or waiting.
            on_open: is awaited with each new channel before anything else is sent.
            condition: is updated.
        """
        self._condition = condition or ChannelHealthTracker(name)
        self._name = name
        self._opener = opener
        self.on_message = on_message
        self.on_missed = on_missed
        self._on_down = on_down
        self._on_open = on_open
        self._channel: MessageChannel | None = None
        self._opening_channel: MessageChannel | None = None
        """The channel on which the handshake is repeated now."""
        self._ear: _ChannelReceiver | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._not_before = 0.0
        self._opened_at = 0.0
        self._closed = False
        self._reason = ""
        self.tools_version = 0
        """See `UpstreamLink.tools_version`."""
        self._state: LinkState = "idle"

    def send(self, line: bytes) -> None:
        """Send a message, opening the channel first if need be.

        Raises:
            UpstreamUnavailableError: it cannot be sent; the words give the reason.
        """
        if self._closed:
            raise UpstreamUnavailableError("cannot be asked any more: the link to it is closed")
        if self._channel is not None:
            self._channel.write(line)
            return
        if self._task is None:
            seconds = self._not_before - time.monotonic()
            if seconds > _WORTH_WAITING:
                raise UpstreamUnavailableError(f"{self._reason}; the next try is in {seconds:.0f} s")
            self._task = asyncio.get_running_loop().create_task(self._open())
        elif len(self._waiting) >= _MAX_WAITING or self._waiting_bytes + len(line) > _MAX_WAITING_BYTES:
            raise UpstreamUnavailableError("is still starting, and too many messages wait for it already")
        self._waiting.append(line)
        self._waiting_bytes += len(line)

    def notify(self, message: Message) -> None:
        """Send what only concerns a server that runs or is being started; dropped when there is none.

        Responses do not wait for the handshake: the server may need them to complete it.
        """
        if self._closed or (self._channel is None and self._task is None):
            return
        try:
            if message.is_response and self._opening_channel is not None:
                self._opening_channel.write(message.line)
            else:
                self.send(message.line)
        except UpstreamUnavailableError as error:
            _log.warning("dropped a message", extra={"upstream": self._name, "reason": str(error)})

    def release(self) -> MessageChannel | None:
        """Hand over the open channel; messages that it receives from now on are not handled here."""
        channel, self._channel = self._channel, None
        self.tools_version += 1
        self._deafen()
        self._is("idle")
        return channel

    def discard(self, channel: MessageChannel) -> None:
        """Close a channel that was handed over, in the background."""
        task = asyncio.get_running_loop().create_task(self._close(channel))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent, now or later."""
        return not self._closed

    def shut(self) -> None:
        """Send nothing from now on."""
        self._closed = True

    async def close(self) -> None:
        """Close permanently."""
        self.shut()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._drop()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def lost(self, ear: "_ChannelReceiver", reason: str) -> None:
        """The channel that `ear` listened to is closed."""
        if ear is not self._ear:
            ear.broken.set_result(reason)
        else:
            self.restart(reason)

    async def _close(self, channel: MessageChannel) -> None:
        try:
            await channel.close()
        except Exception:  # noqa: BLE001  # nothing more can be done
            _log.exception("closing failed", extra={"upstream": self._name})

    async def _open(self) -> None:
        self._is("opening")
        try:
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            await self._establish(_ChannelReceiver(self))
            reason = ""
        except (UpstreamUnavailableError, TimeoutError) as error:
            reason = str(error) or "did not answer the handshake in time"
        except Exception:  # noqa: BLE001  # waiting requests must fail, regardless of the reason
            _log.exception("opening failed", extra={"upstream": self._name})
            reason = "could not be opened; see riglm's log"
        self._task = None
        if reason:
            self._down(reason)
        else:
            self._send_waiting()

    async def _establish(self, ear: "_ChannelReceiver") -> None:
        channel = await self._opener(ear)
        self._opening_channel = channel
        try:
            await self._greet(channel, ear)
        except BaseException:
            ear.deaf = True
            self.discard(channel)
            raise
        finally:
            self._opening_channel = None
        self._channel, self._ear = channel, ear
        self._opened_at = time.monotonic()
        self._is("open")

    async def _greet(self, channel: MessageChannel, ear: "_ChannelReceiver") -> None:
        """Run `on_open`, but not beyond the channel's end."""
        if self._on_open is not None:
            greeting = asyncio.ensure_future(self._on_open(channel))
            waited: set[asyncio.Future[Any]] = {greeting, ear.broken}
            try:
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            finally:
                greeting.cancel()
                failure = (await asyncio.gather(greeting, return_exceptions=True))[0]
            if isinstance(failure, Exception):
                raise failure
        if ear.broken.done():
            raise UpstreamUnavailableError(ear.broken.result())

    def _send_waiting(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        try:
            for line in waiting:
                self.send(line)
        except UpstreamUnavailableError as error:
            self.restart(str(error))

    def restart(self, reason: str) -> None:
        """Close the channel and end its requests for this reason; the next message opens another, after a pause."""
        if time.monotonic() - self._opened_at > _STEADY_SECONDS:
            self._failures = 0
        self._drop()
        self._down(reason)

    def _drop(self) -> None:
        channel = self.release()
        if channel is not None:
            self.discard(channel)

    def _is(self, state: LinkState, error: str | None = None) -> None:
        before, self._state = self._state, state
        self._condition.moved(before, state, error)

    def _deafen(self) -> None:
        if self._ear is not None:
            self._ear.deaf = True
            self._ear = None

    def _down(self, reason: str) -> None:
        delay = min(_MAX_BACKOFF, _INITIAL_BACKOFF * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        self._not_before = time.monotonic() + delay * random.uniform(0.8, 1.2)  # noqa: S311  # spreads restarts
        self._reason = reason
        self._waiting.clear()
        self._waiting_bytes = 0
        self._is("broken", reason)
        _log.warning("upstream down", extra={"upstream": self._name, "reason": reason})
        self._on_down(reason)


class _ChannelReceiver(Receiver):
    """Listens to one channel until another takes its place."""

    def __init__(self, lifeline: ReconnectingChannel) -> None:
        self._reconnecting_channel = lifeline
        self.broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why the channel closed before it was ready."""
        self.deaf = False

    def received(self, message: Message) -> None:
        if not self.deaf:
            if message.method == protocol.TOOLS_CHANGED:
                self._reconnecting_channel.tools_version += 1
            self._reconnecting_channel.on_message(message)

    def missed(self, words: str, key: bytes | None = None) -> None:
        if not self.deaf:
            self._reconnecting_channel.on_missed(words, key)

    def ended(self, words: str) -> None:
        if not self.deaf:
            self._reconnecting_channel.lost(self, words)
