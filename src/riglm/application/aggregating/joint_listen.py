"""One client's `subscriptions/listen` in front of several servers."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from riglm.application.aggregating.merging import merged
from riglm.application.conversations.listen import ACKNOWLEDGED
from riglm.application.forwarding.announcer import CHANGED, Announcer
from riglm.application.forwarding.asking import Asking
from riglm.application.forwarding.exchange import Exchange
from riglm.domain import jsonrpc, protocol
from riglm.domain.invocation import ErrorKind
from riglm.domain.jsonrpc import Message
from riglm.ports.upstream import UpstreamLink

FIRST_DELAY: Final = 1.0
"""So long, in seconds, a server that stopped listening is left alone at first; then twice as long, and so on."""

_LONGEST_DELAY: Final = 30.0
_LOST: Final = frozenset({None, jsonrpc.INTERNAL_ERROR})
_NOTES: Final = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


class JointListen:
    """Listens to all servers, and tells the client once what all of them together granted.

    A server that goes away is listened to again when it is back; what it granted may have changed in between.
    """

    def __init__(
        self,
        exchange: Exchange,
        links: Mapping[str, UpstreamLink],
        asking: Asking,
        *,
        params: Callable[[str], bytes],
        on_change: Callable[[str, tuple[str, ...]], None],
    ) -> None:
        """`params` are the params for a server; `on_change` gets a server and the methods of lists that changed."""
        self._exchange = exchange
        self._links = links
        self._asking = asking
        self._params = params
        self._on_change = on_change
        self._announcer = Announcer(self._pass_on)
        self._granted: dict[str, dict[str, Any]] = {}
        self._undecided = set(links)
        self._decided = asyncio.Event()
        self._acknowledged = False
        asked = jsonrpc.members(jsonrpc.members(exchange.message.params).get("notifications", b"{}"))
        self._wanted = {name: note for name, note in _NOTES.items() if bytes(asked.get(name, b"")) == b"true"}

    async def run(self, grace: float) -> None:
        """Listen until every server has refused to; nobody waits longer than the grace, in seconds, for the first word.

        The end is the answer of the server that refused last.
        """
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._listen(server, link)) for server, link in self._links.items()]
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._decided.wait(), grace)
            if self._granted or self._undecided:
                self._acknowledged = True
                whole: dict[str, Any] = dict.fromkeys(self._wanted, True)
                for granted in self._granted.values():
                    whole = merged(whole, granted)
                self._pass_on(jsonrpc.notification(ACKNOWLEDGED, jsonrpc.encode({"notifications": whole})))
            answers = [await task for task in tasks]
            self._exchange.replied(answers[-1].replace(id=self._exchange.message.id or b"null"))
        finally:
            self._announcer.close()
            for task in tasks:
                task.cancel()

    def announce(self, note: str) -> None:
        """Send a list-changed notification of riglm itself, if the client listens for it."""
        if self._acknowledged and note in self._wanted.values():
            self._announcer.announce(note)

    async def _listen(self, server: str, link: UpstreamLink) -> Message:
        """Listen to one server again and again, until it refuses; the refusal."""
        delay = FIRST_DELAY
        while True:
            answer, failure = await self._asking.put(
                link, "subscriptions/listen", self._params(server), partial(self._told, server)
            )
            lost = failure in (ErrorKind.UNAVAILABLE, ErrorKind.TIMEOUT) or jsonrpc.error_code(answer) in _LOST
            self._decide(server)
            if not lost:
                return answer
            await asyncio.sleep(delay)
            delay = min(_LONGEST_DELAY, 2 * delay)

    def _told(self, server: str, message: Message) -> None:
        if message.method == ACKNOWLEDGED:
            granted = jsonrpc.plain(jsonrpc.members(message.params).get("notifications", b"{}"))
            again = server in self._granted or self._acknowledged
            self._granted[server] = granted if isinstance(granted, dict) else {}
            self._decide(server)
            if again:
                self._catch_up(server)
        elif message.method in CHANGED:
            self._on_change(server, CHANGED[message.method])
            self._announcer.announce(message.method)
        else:
            self._pass_on(message)

    def _catch_up(self, server: str) -> None:
        """Changes may have been missed while nobody listened: let the client look for itself."""
        for name, note in _NOTES.items():
            if self._granted[server].get(name):
                self._on_change(server, CHANGED[note])
                self._announcer.announce(note)
        uris = self._granted[server].get("resourceSubscriptions")
        for uri in uris if isinstance(uris, list) else []:
            self._pass_on(jsonrpc.notification("notifications/resources/updated", jsonrpc.encode({"uri": uri})))

    def _decide(self, server: str) -> None:
        self._undecided.discard(server)
        if not self._undecided:
            self._decided.set()

    def _pass_on(self, message: Message) -> None:
        """A notification under the subscription that the client knows."""
        path = ("_meta", protocol.META_SUBSCRIPTION)
        params = jsonrpc.with_member(message.params or b"{}", path, self._exchange.message.id or b"null")
        self._exchange.related(message.replace(params=params))
