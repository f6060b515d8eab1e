"""An upstream over the older HTTP+SSE transport, which knows the handshake era alone."""

import asyncio
from typing import Final
from urllib.parse import urljoin
from weakref import WeakSet

from riglm.adapters.mcp.upstream.channel import MessageChannel, Receiver, report_unreadable
from riglm.adapters.mcp.upstream.channel_upstream import ChannelUpstream
from riglm.adapters.mcp.upstream.http_link import HttpEndpoint, log
from riglm.adapters.mcp.upstream.refusals import REFUSALS, Refusal
from riglm.adapters.mcp.wire.event_stream import Event, EventParser, EventTooLargeError, unwrap
from riglm.adapters.mcp.wire.http_client import HttpClientError, HttpExchange, HttpHeaders, HttpResponseSink, Target
from riglm.adapters.mcp.wire.messages import decode
from riglm.domain import jsonrpc
from riglm.domain.errors import ConfigurationError, UpstreamUnavailableError
from riglm.domain.jsonrpc import Message
from riglm.domain.protocol import TOOLS_CHANGED
from riglm.domain.session import ProtocolEra

_HOLD_SECONDS: Final = 5.0
_FORGOTTEN: Final = frozenset({404, 410})
_NEVER_TWICE: Final = frozenset({"tools/call"})
_HINTS: Final = {404: ": see its `url`", 405: ": it may support Streamable HTTP, which is `type: http`"}


class SseChannel(MessageChannel, HttpResponseSink):
    """Reads one event stream, and sends every message to the endpoint that its first event names.

    Messages are sent at once, each over any free connection; only what follows the end of the handshake
    waits until that has arrived. A message that the server refuses is answered in the server's place.
    """

    def __init__(self, place: HttpEndpoint, receiver: Receiver) -> None:
        """A stream that is not asked for yet."""
        self.spec = place.spec
        self._place = place
        self._receiver = receiver
        self._parser = EventParser(self._event, place.limit)
        self._endpoint: asyncio.Future[Target] = asyncio.get_running_loop().create_future()
        self._stream: HttpExchange | None = None
        self._posts: dict[_Post, HttpExchange] = {}
        self._held: list[Message] | None = None
        self._holding: asyncio.TimerHandle | None = None
        self._over = False
        self._is_open = False
        self._refusal: Refusal | None = None

    async def open(self) -> None:
        """Ask for the stream, and wait for its first event.

        Raises:
            UpstreamUnavailableError: it cannot be opened, or names no endpoint in time, or one of another origin.
        """
        block = b"accept: text/event-stream\r\ncache-control: no-store\r\n" + self._place.configured
        self._stream = self._place.client.send(self._place.target, b"GET", block, b"", self)
        seconds = self._place.timeout_seconds.initialize
        try:
            await asyncio.wait_for(self._endpoint, seconds)
        except TimeoutError:
            self._shut()
            words = self._refusal.text if self._refusal else f"named no endpoint for messages within {seconds:g} s"
            raise UpstreamUnavailableError(words) from None
        except BaseException:
            self._shut()
            raise

    def write(self, message: Message) -> None:
        if self._over:
            return
        if self._held is not None:
            self._held.append(message)
            return
        if message.method == "notifications/initialized":
            self._held = []
            self._holding = asyncio.get_running_loop().call_later(_HOLD_SECONDS, self._release)
        self._post(_Post(self, message))

    def hand_over(self, receiver: Receiver) -> None:
        self._receiver = receiver

    async def close(self) -> None:
        self._shut()

    def head(self, status: int, headers: HttpHeaders) -> None:
        kind = (headers.get(b"content-type") or b"").lower()
        if status == 200 and kind.startswith(b"text/event-stream"):
            self._is_open = True
        elif status in REFUSALS:
            self._refusal = Refusal(self._place.spec, status, headers)
        else:
            redirect = self._stream.redirect if self._stream is not None else ""
            self._end(f"answered HTTP {status} instead of an event stream{redirect or _HINTS.get(status, '')}")

    def data(self, chunk: bytes) -> None:
        if self._refusal is not None:
            self._refusal.add(chunk)
            return
        try:
            self._parser.feed(chunk)
        except EventTooLargeError:
            self._end(f"sent a message over the limit of {self._place.limit} bytes (`limits.message_bytes`)")

    def end(self) -> None:
        self._end(self._refusal.text if self._refusal else "closed its event stream")

    def failed(self, failure: HttpClientError) -> None:
        verb = "lost" if self._is_open else "did not open"
        self._end(self._refusal.text if self._refusal else f"{verb} its event stream: {failure}")

    def announce_changed_tools(self) -> None:
        """Deliver a `tools/list_changed`, unless the channel is closed."""
        if not self._over:
            self._receiver.received(jsonrpc.notification(TOOLS_CHANGED))

    def delivered(self, post: "_Post") -> None:
        """A POST was answered."""
        exchange = self._posts.pop(post, None)
        if post.status in _FORGOTTEN:
            self._end(f"forgot the session (HTTP {post.status})")
        elif post.refusal is not None:
            self._refused(post.message, post.refusal.text)
        elif post.status >= 300:
            hint = (exchange.redirect if exchange is not None else "") or _HINTS.get(post.status, "")
            self._refused(post.message, f"refused the message with HTTP {post.status}{hint}")
        self._initialized(post.message)

    def undelivered(self, post: "_Post", failure: HttpClientError) -> None:
        """A POST broke; it is sent once more if the server cannot have seen it, or may see it twice."""
        self._posts.pop(post, None)
        if failure.reused and not post.repeated and post.message.method not in _NEVER_TWICE:
            post.repeated = True
            self._post(post)
            return
        self._refused(post.message, f"could not be sent: {failure}")
        self._initialized(post.message)

    def _event(self, event: Event) -> None:
        if self._over or not event.data:
            return
        if event.name == "endpoint" and not self._endpoint.done():
            self._name_endpoint(event.data.decode("utf-8", "replace"))
        elif event.name == "message":
            data = unwrap(event.data)
            decoded = decode(data)
            if isinstance(decoded, Message):
                self._receiver.received(decoded)
            else:
                report_unreadable(data, decoded, self._receiver, self.spec.name)

    def _name_endpoint(self, reference: str) -> None:
        place = self._place
        try:
            # As in the official SDKs, it is relative to the configured URL, not to where a redirect of the stream led.
            target = Target(urljoin(place.spec.url, reference.strip()))
        except (ConfigurationError, ValueError):
            self._end("named an endpoint for messages that is no URL")
            return
        if target.origin == place.target.origin:
            self._endpoint.set_result(target)
        else:
            self._end(f"named an endpoint for messages at another origin, {target.origin}, which is refused")

    def _post(self, post: "_Post") -> None:
        target = self._endpoint.result()
        self._posts[post] = self._place.client.send(target, b"POST", self._place.headers, post.message.line, post)

    def _refused(self, message: Message, words: str) -> None:
        log.warning("a message was not taken", extra={"upstream": self.spec.name, "reason": words})
        if message.is_request and not self._over:
            words = f"upstream {self.spec.name!r} {words}"
            self._receiver.received(jsonrpc.error(message.id, jsonrpc.UPSTREAM_UNAVAILABLE, words))

    def _initialized(self, message: Message) -> None:
        if message.method == "notifications/initialized":
            self._release()

    def _release(self) -> None:
        """Send what waited for the end of the handshake."""
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
        held, self._held = self._held or [], None
        for message in held:
            self.write(message)

    def _end(self, words: str) -> None:
        """The channel is over, and not because riglm closed it."""
        if self._over:
            return
        self._shut()
        if self._endpoint.done():
            self._receiver.ended(words)
        else:
            self._endpoint.set_exception(UpstreamUnavailableError(words))

    def _shut(self) -> None:
        self._over = True
        if self._holding is not None:
            self._holding.cancel()
        if self._stream is not None:
            self._stream.abort()
        posts, self._posts = self._posts, {}
        for exchange in posts.values():
            exchange.abort()


class _Post(HttpResponseSink):
    """One message on its way up."""

    def __init__(self, channel: SseChannel, message: Message) -> None:
        self.message = message
        self.status = 0
        self.refusal: Refusal | None = None
        self.repeated = False
        self._channel = channel

    def head(self, status: int, headers: HttpHeaders) -> None:
        self.status = status
        if status in REFUSALS:
            self.refusal = Refusal(self._channel.spec, status, headers)

    def data(self, chunk: bytes) -> None:
        """Read nothing but a refusal: the answer comes down the stream."""
        if self.refusal is not None:
            self.refusal.add(chunk)

    def end(self) -> None:
        self._channel.delivered(self)

    def failed(self, failure: HttpClientError) -> None:
        if self.refusal is not None:
            self._channel.delivered(self)
        else:
            self._channel.undelivered(self, failure)


class SseUpstream(ChannelUpstream):
    """Opens an event stream for each client connection, or one for all where `sharing` is `shared`."""

    def __init__(self, place: HttpEndpoint) -> None:
        """An upstream at `place`."""
        super().__init__(place.spec, place.timeout_seconds)
        self._place = place
        self._channels: WeakSet[SseChannel] = WeakSet()

    def announce_changed_tools(self) -> None:
        for channel in list(self._channels):
            channel.announce_changed_tools()

    async def open(self, receiver: Receiver, principal: str = "") -> MessageChannel:
        channel = SseChannel(self._place, receiver)
        await channel.open()
        self._channels.add(channel)
        return channel

    def supports(self, era: ProtocolEra) -> bool | None:
        return era is ProtocolEra.HANDSHAKE
