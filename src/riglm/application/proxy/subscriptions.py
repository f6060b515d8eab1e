"""Subscriptions of modern clients: a `subscriptions/listen` is a request whose stream stays open."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from riglm.application.proxy.client_messages import CHANGED, DebouncedNotifier
from riglm.application.proxy.merging import merged
from riglm.application.proxy.request import Request, ask
from riglm.application.proxy.stage import Outcome, Stage
from riglm.domain import jsonrpc, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.domain.protocol import ACKNOWLEDGED, TOOLS_CHANGED
from riglm.domain.session import Session
from riglm.ports.downstream import ClientResponseSink

if TYPE_CHECKING:
    from riglm.application.proxy.member import Member
    from riglm.application.proxy.parts import ProxyParts

LISTEN: Final = "subscriptions/listen"

INITIAL_BACKOFF: Final = 1.0
"""Initial backoff in seconds for a server that ended a subscription; it doubles with each failure."""

_MAX_BACKOFF: Final = 30.0
_LOST: Final = frozenset({None, jsonrpc.INTERNAL_ERROR})
_WANTED: Final = ("notifications", "toolsListChanged")
_SUBSCRIPTION: Final = ("_meta", protocol.META_SUBSCRIPTION)
_NOTIFICATIONS: Final = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


class SubscribeStage(Stage):
    """Lets the filter announce changes on a subscription."""

    methods = frozenset({LISTEN})

    def __init__(self, parts: "ProxyParts") -> None:
        self._filtering = parts.filtering
        self._sessions = parts.sessions

    def before(self, request: Request) -> Outcome:
        if self._filtering is None or request.envelope is None:
            return None
        if self._filtering.announces_to(request.era.kind, request.caller.transport, request.envelope.client):
            request.session = request.era.identify(request, self._sessions)
            request.sink = request.upstreams.subscriptions.add(request)
        return None


class ToolListSubscription(ClientResponseSink):
    """A subscription to which riglm adds notifications once the server has acknowledged it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self._sink = request.sink
        wanted = jsonrpc.members(jsonrpc.members(request.asked.params).get(_WANTED[0], b"{}"))
        self._wants_tools = bytes(wanted.get(_WANTED[1], b"")) == b"true"
        self._granted = False

    def notify(self) -> None:
        """Send a notification that the tool list has changed."""
        if self._granted and not self.request.done:
            stamp = jsonrpc.join_object({protocol.META_SUBSCRIPTION: self.request.id})
            self._sink.related(jsonrpc.notification(TOOLS_CHANGED, b'{"_meta":%b}' % stamp))

    def related(self, message: Message) -> None:
        if message.method == ACKNOWLEDGED and self._wants_tools:
            self._granted = True
            message = message.replace(params=jsonrpc.with_member(message.params, _WANTED, b"true"))
        self._sink.related(message)

    def replied(self, message: Message, status: int = 200) -> None:
        self._sink.replied(message, status)


class Subscriptions:
    """All open subscriptions of modern clients with the same rights."""

    def __init__(self) -> None:
        self.merged: set[MergedSubscription] = set()
        self.notify_others: Callable[[str], None] = lambda _: None
        """Called with the client whose list changed, to notify its subscriptions in other processes."""
        self._open: list[ToolListSubscription] = []

    def add(self, request: Request) -> ToolListSubscription:
        """Add the subscription of a request, and forget those that have ended."""
        self._open = [each for each in self._open if not each.request.done]
        subscription = ToolListSubscription(request)
        self._open.append(subscription)
        return subscription

    def tools_changed(self, session: Session) -> None:
        """Notify all subscriptions of a session's client, since its calls may name another session."""
        self.notify(session.client_id)
        self.notify_others(session.client_id)

    def notify(self, client_id: str) -> None:
        """Notify the subscriptions of a client whose list changed, here or in another process."""
        for each in self._open:
            if each.request.session.client_id == client_id:
                each.notify()

    def notify_changed(self, has_changed: Callable[[Session], bool]) -> None:
        """Notify the subscriptions of sessions whose list has changed."""
        for each in self._open:
            if has_changed(each.request.session):
                each.notify()

    def announce(self, notification: str) -> None:
        """Announce a list of several servers that came after clients had got a reply without it."""
        for each in self.merged:
            each.announce(notification)


class MergedSubscription:
    """Subscribes to several servers, and sends the client one acknowledgment of what all of them granted.

    A server that disconnects is subscribed again when it is back; what it grants may then differ.
    """

    def __init__(self, request: Request, members: "Mapping[str, Member]", params: Callable[[str], bytes]) -> None:
        """`params` returns the params for a server."""
        self._request = request
        self._members = members
        self._params = params
        self._announcer = DebouncedNotifier(self._pass_on)
        self._granted: dict[str, dict[str, Any]] = {}
        self._undecided = set(members)
        self._decided = asyncio.Event()
        self._acknowledged = False
        wanted = jsonrpc.members(jsonrpc.members(request.asked.params).get("notifications", b"{}"))
        self._wanted = {name: note for name, note in _NOTIFICATIONS.items() if bytes(wanted.get(name, b"")) == b"true"}

    async def run(self, grace: float) -> Message:
        """Subscribe until every server has refused; the first acknowledgment waits for at most the grace, in seconds.

        Returns the reply of the server that refused last.
        """
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._listen(member)) for member in self._members.values()]
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._decided.wait(), grace)
            if self._granted or self._undecided:
                self._acknowledged = True
                granted: dict[str, Any] = dict.fromkeys(self._wanted, True)
                for each in self._granted.values():
                    granted = merged(granted, each)
                self._pass_on(jsonrpc.notification(ACKNOWLEDGED, jsonrpc.encode({"notifications": granted})))
            replies = [await task for task in tasks]
            return replies[-1].replace(id=self._request.id)
        finally:
            self._announcer.close()
            for task in tasks:
                task.cancel()

    def announce(self, notification: str) -> None:
        """Send a list-changed notification of riglm itself, if the client listens for it."""
        if self._acknowledged and notification in self._wanted.values():
            self._announcer.announce(notification)

    async def _listen(self, member: "Member") -> Message:
        """Listen to one server again and again, until it refuses; returns the refusal."""
        backoff = INITIAL_BACKOFF
        while True:
            related = partial(self._related, member)
            reply, failure = await ask(member.link, LISTEN, self._params(member.name), related)
            is_lost = failure in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT) or jsonrpc.error_code(reply) in _LOST
            self._decide(member.name)
            if not is_lost:
                return reply
            await asyncio.sleep(backoff)
            backoff = min(_MAX_BACKOFF, 2 * backoff)

    def _related(self, member: "Member", message: Message) -> None:
        if message.method == ACKNOWLEDGED:
            granted = jsonrpc.plain(jsonrpc.members(message.params).get("notifications", b"{}"))
            is_again = member.name in self._granted or self._acknowledged
            self._granted[member.name] = granted if isinstance(granted, dict) else {}
            self._decide(member.name)
            if is_again:
                self._catch_up(member)
        elif message.method in CHANGED:
            self._changed(member, message.method, CHANGED[message.method])
        else:
            self._pass_on(message)

    def _changed(self, member: "Member", notification: str, methods: Sequence[str]) -> None:
        member.forget(methods)
        if notification == TOOLS_CHANGED:
            self._request.upstreams.tools_changed()
        self._announcer.announce(notification)

    def _catch_up(self, member: "Member") -> None:
        """Notify the client of all lists, because changes may have been missed without a subscription."""
        granted = self._granted[member.name]
        for name, notification in _NOTIFICATIONS.items():
            if granted.get(name):
                self._changed(member, notification, CHANGED[notification])
        uris = granted.get("resourceSubscriptions")
        for uri in uris if isinstance(uris, list) else []:
            self._pass_on(jsonrpc.notification("notifications/resources/updated", jsonrpc.encode({"uri": uri})))

    def _decide(self, server: str) -> None:
        self._undecided.discard(server)
        if not self._undecided:
            self._decided.set()

    def _pass_on(self, message: Message) -> None:
        """Send a notification under the subscription that the client knows."""
        params = jsonrpc.with_member(message.params or b"{}", _SUBSCRIPTION, self._request.id)
        self._request.sink.related(message.replace(params=params))
