"""Subscriptions of handshake clients to an upstream that uses `subscriptions/listen`."""

import asyncio
import itertools
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, Protocol

from riglm.application.proxy.round_trips import error_for
from riglm.domain import jsonrpc, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.protocol import ACKNOWLEDGED
from riglm.ports.downstream import NO_HEADERS
from riglm.ports.upstream import UpstreamLink, UpstreamRequest

_ENDED: Final = jsonrpc.error(None, jsonrpc.INTERNAL_ERROR, "the upstream ended the subscription")


class SubscriptionChange:
    """A client's `resources/subscribe` or `resources/unsubscribe` that waits to be granted."""

    def __init__(self, reply: UpstreamRequest, uri: str | None) -> None:
        """`uri` is the resource that the client subscribes to, None when it unsubscribes."""
        self.reply = reply
        self.uri = uri

    def granted(self) -> None:
        """The upstream knows."""
        self.reply.replied(jsonrpc.result(self.reply.message.id or b"null", b"{}"))

    def refused(self, error: Message) -> None:
        """The upstream does not do it, for the reason that an error response gives."""
        self.reply.replied(error_for(self.reply.message, error))


class SubscriptionOwner(Protocol):
    """Who opened a listen."""

    @abstractmethod
    def acknowledged(self, listen: "SubscriptionRequest", message: Message) -> None:
        """The upstream takes a listen up."""

    @abstractmethod
    def on_notification(self, listen: "SubscriptionRequest", message: Message) -> None:
        """Called with each notification of the upstream."""

    @abstractmethod
    def ended(
        self, listen: "SubscriptionRequest", notify: Callable[[SubscriptionChange], None], *, again: bool
    ) -> None:
        """Called when a listen has ended, with the error for waiting requests; `again` if a new one may succeed."""


class SubscriptionRequest(UpstreamRequest):
    """One `subscriptions/listen` on its way."""

    headers = NO_HEADERS

    def __init__(
        self,
        owner: SubscriptionOwner,
        message: Message,
        wanted: bytes,
        changes: list[SubscriptionChange],
        opened_at: float,
    ) -> None:
        """Asks for `wanted`, which brings `changes` about; `opened_at` by the loop's clock, in seconds."""
        self.message = message
        self.wanted = wanted
        self.changes = changes
        self.opened_at = opened_at
        self._owner = owner

    def related(self, message: Message) -> None:
        if message.method == ACKNOWLEDGED:
            self._owner.acknowledged(self, message)
        else:
            self._owner.on_notification(self, message)

    def paused(self, retry_ms: int) -> None:
        """Wait on."""

    def replied(self, message: Message, status: int = 200) -> None:
        error = message if message.error else _ENDED
        again = jsonrpc.error_code(error) == jsonrpc.INTERNAL_ERROR
        self._owner.ended(self, lambda change: change.refused(error), again=again)

    def failed(self, kind: ErrorKind, words: str) -> None:
        again = kind is not ErrorKind.PROTOCOL
        self._owner.ended(self, lambda change: change.reply.failed(kind, words), again=again)


_MAX_BACKOFF: Final = 30.0
_STEADY_SECONDS: Final = 30.0
_LISTS: Final = ("tools", "prompts", "resources")
_NO_URI: Final = jsonrpc.error(None, jsonrpc.INVALID_PARAMS, "Invalid params: the uri is missing")
_NOT_TOLD: Final = jsonrpc.error(
    None, jsonrpc.INVALID_PARAMS, "the upstream does not notify of changes of this resource"
)


class Subscription(SubscriptionOwner):
    """Keeps one listen open while there is something to receive, and replaces it when that changes.

    The new one is acknowledged before the old one is ended, so that nothing is missed in between.
    """

    def __init__(
        self,
        link: UpstreamLink,
        enveloped: Callable[[Raw | bytes], bytes],
        on_message: Callable[[Message], None],
        *,
        timeout_seconds: float = 10.0,
        delay: float = 1.0,
    ) -> None:
        """`enveloped` adds the client's envelope to params; `on_message` gets the notifications for the client.

        An upstream may take `timeout_seconds` seconds to acknowledge a listen. One that ends it is asked again after
        `delay` seconds, and after longer and longer ones if that does not last.
        """
        self._link = link
        self._enveloped = enveloped
        self._on_message = on_message
        self._timeout_seconds = timeout_seconds
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._count = itertools.count(1)
        self._lists: tuple[str, ...] = ()
        self._uris: dict[str, Raw] = {}
        self._listening = False
        self._changes: list[SubscriptionChange] = []
        self._current: SubscriptionRequest | None = None
        self._next: SubscriptionRequest | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._missed = False

    def offer(self, capabilities: Raw | bytes) -> None:
        """Return what the upstream supports, from its raw capabilities."""
        offered = jsonrpc.members(capabilities)
        self._lists = tuple(name for name in _LISTS if _tells_changes(offered.get(name, Raw(b"{}"))))

    def listen(self, *, listening: bool) -> None:
        """Pause or resume notifications (backpressure while the client does not read)."""
        self._listening = listening
        self._refresh()

    def subscribe(self, reply: UpstreamRequest) -> None:
        """Grant a `resources/subscribe` once the upstream knows of it."""
        raw = jsonrpc.members(reply.message.params).get("uri")
        uri = jsonrpc.text(raw)
        if raw is None or uri is None:
            SubscriptionChange(reply, None).refused(_NO_URI)
            return
        self._uris[uri] = raw
        self._changes.append(SubscriptionChange(reply, uri))
        self._refresh()

    def unsubscribe(self, reply: UpstreamRequest) -> None:
        """Grant a `resources/unsubscribe` once the upstream has stopped notifying."""
        self._uris.pop(jsonrpc.text(jsonrpc.members(reply.message.params).get("uri")) or "", None)
        self._changes.append(SubscriptionChange(reply, None))
        self._refresh()

    def close(self) -> None:
        """End it all."""
        self._listening = False
        self._uris.clear()
        self._changes.clear()
        listens, self._current, self._next = (self._current, self._next), None, None
        self._wait(None)
        for listen in listens:
            if listen is not None:
                self._link.cancel(listen, None)

    def acknowledged(self, listen: SubscriptionRequest, message: Message) -> None:
        if listen is not self._next:
            return
        self._wait(None)
        before, self._current, self._next = self._current, listen, None
        if before is not None:
            self._link.cancel(before, None)
        granted = jsonrpc.members(jsonrpc.members(message.params).get("notifications", b"{}"))
        uris = {jsonrpc.text(raw) for raw in jsonrpc.elements(granted.get("resourceSubscriptions", b"[]"))}
        changes, listen.changes = listen.changes, []
        for change in changes:
            if change.uri is None or change.uri in uris:
                change.granted()
            else:
                self._uris.pop(change.uri, None)
                change.refused(_NOT_TOLD)
        if self._missed:
            self._missed = False
            self._tell_all()
        self._refresh()

    def on_notification(self, listen: SubscriptionRequest, message: Message) -> None:
        if listen is not self._current and listen is not self._next:
            return
        fields = jsonrpc.members(message.params)
        meta = jsonrpc.members(fields.pop("_meta", b"{}"))
        meta.pop(protocol.META_SUBSCRIPTION, None)
        if meta:
            fields["_meta"] = Raw(jsonrpc.join_object(meta))
        self._on_message(jsonrpc.notification(message.method or "", jsonrpc.join_object(fields)))

    def ended(self, listen: SubscriptionRequest, notify: Callable[[SubscriptionChange], None], *, again: bool) -> None:
        if listen is self._current:
            self._current = None
        elif listen is self._next:
            self._next = None
            self._wait(None)
        else:
            return
        self._missed = self._missed or self._current is None
        changes, self._changes = [*listen.changes, *self._changes], []
        for change in changes:
            if change.uri is not None:
                self._uris.pop(change.uri, None)
            notify(change)
        if again and self._next is None:
            steady = self._loop.time() - listen.opened_at > _STEADY_SECONDS
            self._failures = 0 if steady else self._failures
            delay = min(_MAX_BACKOFF, self._delay * 2**self._failures)
            self._failures = min(self._failures + 1, 10)
            self._wait(self._loop.call_later(delay, self._refresh))

    def _refresh(self) -> None:
        """Open, replace or end the listen, if what it asks for is not what is wanted."""
        if self._next is not None:
            return  # its end, good or bad, leads here again
        wanted = self._wanted()
        if wanted and wanted != (self._current.wanted if self._current else b""):
            self._open(wanted)
            return
        if self._current is not None and not wanted:
            self._link.cancel(self._current, None)
            self._current = None
        if not wanted:
            self._wait(None)
        changes, self._changes = self._changes, []
        for change in changes:
            change.granted()

    def _wanted(self) -> bytes:
        """The filter of the listen that is needed now, empty when none is."""
        if not self._listening and not self._uris:
            return b""
        fields = {f"{name}ListChanged": b"true" for name in self._lists}
        if self._uris:
            fields["resourceSubscriptions"] = b"[" + b",".join(map(bytes, self._uris.values())) + b"]"
        return jsonrpc.join_object(fields) if fields else b""

    def _open(self, wanted: bytes) -> None:
        params = self._enveloped(b'{"notifications":%b}' % wanted)
        message = jsonrpc.request(b'"riglm-listen-%d"' % next(self._count), "subscriptions/listen", params)
        changes, self._changes = self._changes, []
        self._next = listen = SubscriptionRequest(self, message, wanted, changes, self._loop.time())
        self._wait(self._loop.call_later(self._timeout_seconds, self._expired, listen))
        self._link.request(message, listen)

    def _expired(self, listen: SubscriptionRequest) -> None:
        self._link.cancel(listen, None)
        words = (
            f"upstream {self._link.spec.name!r} did not acknowledge a subscription within {self._timeout_seconds:g} s"
        )
        self.ended(listen, lambda change: change.reply.failed(ErrorKind.TIMEOUT, words), again=True)

    def _tell_all(self) -> None:
        """Notify the client of all lists, because changes may have been missed without a subscription."""
        for name in self._lists:
            self._on_message(jsonrpc.notification(f"notifications/{name}/list_changed"))
        for uri in self._uris.values():
            self._on_message(jsonrpc.notification("notifications/resources/updated", b'{"uri":%b}' % bytes(uri)))

    def _wait(self, timer: asyncio.TimerHandle | None) -> None:
        """Wait for this from now on, and for nothing else."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer


def _tells_changes(capability: Raw) -> bool:
    return bytes(jsonrpc.members(capability).get("listChanged", b"")) == b"true"
