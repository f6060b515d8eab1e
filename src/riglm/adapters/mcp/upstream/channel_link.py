"""Links over a channel, which they open when it is needed, and again after it broke."""

import asyncio
import logging
import random
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Final

from riglm.adapters.mcp.upstream.channel import MessageChannel, NullReceiver, Opener, Receiver
from riglm.adapters.mcp.upstream.deadlines import PendingRequest, PendingRequests, UpstreamTimeouts, progress_token
from riglm.adapters.mcp.upstream.handshake_replay import NOTED, REPLAY_ID, HandshakeReplay
from riglm.adapters.mcp.upstream.health import ChannelHealthTracker
from riglm.domain import jsonrpc, protocol
from riglm.domain.errors import UpstreamUnavailableError
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.upstream import LinkState, UpstreamSpec
from riglm.ports.upstream import ServerMessageHandler, UpstreamLink, UpstreamRequest

_INITIAL_BACKOFF: Final = 0.1
_MAX_BACKOFF: Final = 30.0
_MAX_BACKOFF_TO_WAIT: Final = 1.0
_STEADY_SECONDS: Final = 10.0
_MAX_WAITING: Final = 10_000
_MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
_log: Final = logging.getLogger("riglm.upstream")


class ReconnectingLink(Receiver):
    """Has one channel at a time, and the requests in flight over it. Nothing is started before the first message.

    Subclasses decide which ids the server gets, and where its messages go.
    """

    tools_version = 0

    def __init__(
        self,
        spec: UpstreamSpec,
        opener: Opener,
        timeout_seconds: UpstreamTimeouts,
        condition: ChannelHealthTracker | None = None,
    ) -> None:
        """Create a link without a channel; `condition` is updated."""
        self.spec = spec
        self.pending = PendingRequests(spec.name, timeout_seconds, self.before_expiry)
        self.handshake = HandshakeReplay()
        self.is_closed = False
        self._opener = opener
        self._timeout_seconds = timeout_seconds
        self._condition = condition or ChannelHealthTracker(spec.name)
        self._state: LinkState = "idle"
        self._channel: MessageChannel | None = None
        self._new_channel: MessageChannel | None = None
        """The channel on which the handshake is repeated now."""
        self._new_channel_end = ""
        """Why the new channel ended before it was ready."""
        self._replayed: asyncio.Future[Message] | None = None
        """The response to the repeated `initialize`."""
        self._waiting: list[Message] = []
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._not_before = 0.0
        self._opened_at = 0.0
        self._reason = ""

    @abstractmethod
    def respond(self, request: PendingRequest, response: Message) -> None:
        """Pass the response to a request on."""

    @abstractmethod
    def relay(self, message: Message) -> None:
        """Pass on a notification or request of the server."""

    @abstractmethod
    def before_expiry(self, request: PendingRequest) -> None:
        """Called with each request that timed out, before it fails."""

    def on_open(self, handshake: Message | None) -> None:
        """Called when a new channel is ready, with the response to the repeated `initialize`, if there was one."""

    def on_down(self) -> None:
        """Called when the channel is closed, before its requests fail."""

    def forward(self, key: bytes, message: Message, reply: UpstreamRequest) -> None:
        """Send a request, opening the channel first if need be."""
        try:
            if self._channel is not None:
                self._channel.write(message)
            else:
                self._send_later(message)
        except UpstreamUnavailableError as error:
            reply.failed(ErrorKind.UNAVAILABLE, f"upstream {self.spec.name!r} {error}")
        else:
            self.pending.add(key, reply)

    def send(self, message: Message) -> None:
        """Send what only concerns a server that runs or is being started; dropped when there is none.

        Responses do not wait for the handshake: the server may need them to complete it.
        """
        channel = self._channel or (self._new_channel if message.is_response else None)
        try:
            if channel is not None:
                channel.write(message)
            elif self._task is not None:
                self._send_later(message)
        except UpstreamUnavailableError as error:
            _log.warning("dropped a message", extra={"upstream": self.spec.name, "reason": str(error)})

    def received(self, message: Message) -> None:
        if message.method is not None:
            if message.method == protocol.TOOLS_CHANGED:
                self.tools_version += 1
            self.relay(message)
            return
        request = self.pending.by_key.pop(message.id or b"null", None) or self.pending.pop_answered(message)
        if request is not None:
            self.respond(request, message)
        elif message.id != REPLAY_ID:
            self.on_unawaited(message)
        elif self._replayed is not None and not self._replayed.done():
            self._replayed.set_result(message)

    def on_unawaited(self, response: Message) -> None:
        """Called with a response that belongs to no request."""
        log_unawaited(self.spec.name, response)

    def missed(self, words: str, key: bytes | None = None) -> None:
        if key is None:
            self.pending.fail_all(ErrorKind.PROTOCOL, words)
        else:
            self.pending.fail(key, ErrorKind.PROTOCOL, words)

    def ended(self, words: str) -> None:
        if self._channel is not None:
            self.restart(words)
        else:
            self._new_channel_end = words
            if self._replayed is not None and not self._replayed.done():
                self._replayed.set_exception(UpstreamUnavailableError(words))

    def restart(self, reason: str) -> None:
        """Close the channel and end its requests for this reason; the next message opens another, after a pause."""
        if time.monotonic() - self._opened_at > _STEADY_SECONDS:
            self._failures = 0
        self._drop()
        self._down(reason)

    def take_channel(self) -> MessageChannel | None:
        """Hand over the open channel; messages that it receives from now on are not handled here."""
        channel, self._channel = self._channel, None
        self.tools_version += 1
        if channel is not None:
            channel.hand_over(NullReceiver())
        self._set_state("idle")
        return channel

    def discard(self, channel: MessageChannel) -> None:
        """Close a channel in the background."""
        channel.hand_over(NullReceiver())
        task = asyncio.get_running_loop().create_task(self._close_channel(channel))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close permanently."""
        self.is_closed = True
        self.pending.close()
        opening, self._task = self._task, None
        if opening is not None:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
        self._drop()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _send_later(self, message: Message) -> None:
        if self.is_closed:
            raise UpstreamUnavailableError("cannot be asked any more: the link to it is closed")
        if self._task is None:
            seconds = self._not_before - time.monotonic()
            if seconds > _MAX_BACKOFF_TO_WAIT:
                raise UpstreamUnavailableError(f"{self._reason}; the next try is in {seconds:.0f} s")
            self._task = asyncio.get_running_loop().create_task(self._open())
        elif len(self._waiting) >= _MAX_WAITING or self._waiting_bytes + len(message.line) > _MAX_WAITING_BYTES:
            raise UpstreamUnavailableError("is still starting, and too many messages wait for it already")
        self._waiting.append(message)
        self._waiting_bytes += len(message.line)

    async def _open(self) -> None:
        self._set_state("opening")
        try:
            await asyncio.sleep(max(0.0, self._not_before - time.monotonic()))
            await self._establish()
        except (UpstreamUnavailableError, TimeoutError) as error:
            reason = str(error) or "did not answer the handshake in time"
        except Exception:  # noqa: BLE001  # waiting requests must fail, regardless of the reason
            _log.exception("opening failed", extra={"upstream": self.spec.name})
            reason = "could not be opened; see riglm's log"
        else:
            self._task = None
            self._send_waiting()
            return
        self._task = None
        self._down(reason)

    async def _establish(self) -> None:
        self._new_channel_end = ""
        channel = self._new_channel = await self._opener(self)
        try:
            handshake = await self._replay_handshake(channel)
        except BaseException:
            self.discard(channel)
            raise
        finally:
            self._new_channel = None
        self._channel = channel
        self._opened_at = time.monotonic()
        self._set_state("open")
        self.on_open(handshake)

    async def _replay_handshake(self, channel: MessageChannel) -> Message | None:
        response = None
        if not self.handshake.is_empty and not self._new_channel_end:
            self._replayed = asyncio.get_running_loop().create_future()
            channel.write(self.handshake.initialize())
            response = await asyncio.wait_for(self._replayed, self._timeout_seconds.initialize)
            if not response.result:
                raise UpstreamUnavailableError("restarted and refused the handshake")
            for message in self.handshake.messages():
                channel.write(message)
        if self._new_channel_end:
            raise UpstreamUnavailableError(self._new_channel_end)
        return response

    def _send_waiting(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        try:
            for message in waiting:
                if self._channel is not None:
                    self._channel.write(message)
        except UpstreamUnavailableError as error:
            self.restart(str(error))

    def _down(self, reason: str) -> None:
        delay = min(_MAX_BACKOFF, _INITIAL_BACKOFF * 2**self._failures)
        self._failures = min(self._failures + 1, 16)
        self._not_before = time.monotonic() + delay * random.uniform(0.8, 1.2)  # noqa: S311  # spreads restarts
        self._reason = reason
        self._waiting.clear()
        self._waiting_bytes = 0
        self._set_state("broken", reason)
        _log.warning("upstream down", extra={"upstream": self.spec.name, "reason": reason})
        self.on_down()
        self.pending.fail_all(ErrorKind.UNAVAILABLE, reason)

    def _drop(self) -> None:
        channel = self.take_channel()
        if channel is not None:
            self.discard(channel)

    async def _close_channel(self, channel: MessageChannel) -> None:
        try:
            await channel.close()
        except Exception:  # noqa: BLE001  # nothing more can be done
            _log.exception("closing failed", extra={"upstream": self.spec.name})

    def _set_state(self, state: LinkState, error: str | None = None) -> None:
        before, self._state = self._state, state
        self._condition.moved(before, state, error)


_ABOUT_ONE_REQUEST: Final = "notifications/message"
_MAX_UNANSWERED: Final = 2
"""Handshakes in a row without an answer after which the server is restarted; the first may wait for a download."""


class ChannelLink(ReconnectingLink, UpstreamLink):
    """A link of one client connection over a dedicated channel: ids and payloads pass unchanged.

    It opens again with the client's own handshake.
    """

    def __init__(
        self,
        spec: UpstreamSpec,
        opener: Opener,
        message_handler: ServerMessageHandler,
        timeout_seconds: UpstreamTimeouts,
        on_close: Callable[["ChannelLink"], None],
        condition: ChannelHealthTracker | None = None,
    ) -> None:
        """A link that opens with its first request; `on_close` is called when it is closed and released."""
        super().__init__(spec, opener, timeout_seconds, condition)
        self._message_handler = message_handler
        self._on_close = on_close
        self._unanswered = 0

    def request(self, message: Message, reply: UpstreamRequest) -> None:
        key = jsonrpc.id_key(message.id or b"null")
        if key in self.pending.by_key:
            reply.replied(jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, "Invalid request: the id is in use"), 400)
            return
        if message.method == "initialize":
            self.handshake.begin()
        self.forward(key, message, reply)

    def cancel(self, reply: UpstreamRequest, notice: Message | None) -> None:
        if self.pending.withdraw(reply) is not None:
            self.send(notice or cancellation(reply.message.id or b"null", "the client gave up"))

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._on_close(self)

    def respond(self, request: PendingRequest, response: Message) -> None:
        self._unanswered = 0
        asked = request.reply.message
        if asked.method in NOTED:
            self.handshake.note(asked, response)
        asked_id = asked.id or b"null"
        if response.id != asked_id and (asked_id[:1] != b'"' or jsonrpc.id_key(response.id or b"") != request.key):
            response = response.replace(id=asked_id)
        request.reply.replied(response)

    def relay(self, message: Message) -> None:
        request = self._find_related(message)
        if request is None:
            self._message_handler.unsolicited(self, message)
            return
        token = progress_token(request.reply.message) if message.method == "notifications/progress" else b""
        if token and token != bytes(jsonrpc.members(message.params).get("progressToken", b"")):
            message = message.replace(params=jsonrpc.with_member(message.params, ("progressToken",), token))
        request.relate(message)

    def on_down(self) -> None:
        self._message_handler.disconnected(self)

    def before_expiry(self, request: PendingRequest) -> None:
        if request.reply.message.method != "initialize":
            self.send(cancellation(request.reply.message.id or b"null", "riglm's deadline"))
            return
        self._unanswered += 1
        if self._unanswered == _MAX_UNANSWERED:
            self._unanswered = 0
            self.restart(f"did not answer {_MAX_UNANSWERED} handshakes")

    def _find_related(self, message: Message) -> PendingRequest | None:
        """Return the request that a message of the server belongs to, if this transport shows it."""
        if message.method == "notifications/progress":
            token = bytes(jsonrpc.members(message.params).get("progressToken", b""))
            return self.pending.with_progress_token(token)
        if message.id is not None or message.method == _ABOUT_ONE_REQUEST:
            return self.pending.only
        return None


def cancellation(message_id: bytes, reason: str) -> Message:
    """Return a `notifications/cancelled` that riglm sends itself."""
    params = b'{"requestId":%b,"reason":%b}' % (message_id, jsonrpc.encode(reason))
    return jsonrpc.notification("notifications/cancelled", params)


def log_unawaited(upstream: str, answer: Message) -> None:
    """Log an answer that belongs to no request: its request was cancelled, or its id is wrong."""
    about = {"upstream": upstream, "id": (answer.id or b"null")[:80].decode("utf-8", "replace")}
    _log.info("ignored a response without a request", extra=about)
