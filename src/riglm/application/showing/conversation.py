"""A client connection of the handshake era that is shown what the filter chooses."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Protocol

from riglm.application.forwarding.exchange import NOWHERE, Exchange
from riglm.application.forwarding.services import Services, tool_name
from riglm.application.showing.list_news import ListNews, OverheardChannel, announcing, has_announced, offering
from riglm.application.showing.list_walk import ListWalk
from riglm.application.showing.meta_calls import MetaCall, MetaCalls
from riglm.application.showing.relays import Completed, Relay, Resumed, Unstreamed
from riglm.application.showing.showing import Showing
from riglm.domain import jsonrpc, parameters
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.session import Session
from riglm.domain.tool import Catalogue
from riglm.ports.downstream import NO_HEADERS, Caller, Carried, ClientChannel, Conversation, ReplySink, Underway
from riglm.ports.upstream import Stream


class WholeConversation(Conversation, Protocol):
    """A conversation in which everything is shown."""

    @abstractmethod
    def spellings(self, tool: str) -> tuple[str, ...]:
        """All names under which the client may know the tool that `tool` reaches."""


class ShowingConversation(Conversation):
    """Stands around a conversation, and concerns itself with tools alone."""

    __slots__ = (
        "_caller",
        "_catalogue",
        "_changes",
        "_hears",
        "_latest",
        "_meta_calls",
        "_news",
        "_own",
        "_showing",
        "_whole",
    )

    def __init__(
        self,
        showing: Showing,
        converse: Callable[[Services, ClientChannel], WholeConversation],
        caller: Caller,
        channel: ClientChannel,
    ) -> None:
        """`converse` opens the conversation that all is passed on to."""
        self._showing = showing
        self._caller = caller
        self._news = ListNews(channel)
        self._whole = converse(showing.observed(), OverheardChannel(channel, self._forget))
        self._meta_calls: MetaCalls | None = None
        self._own: dict[bytes, ListWalk | MetaCall] = {}
        self._changes = 0  # how often the upstream's tools changed
        self._catalogue: Catalogue | None = None
        self._latest: Session | None = None  # whose list is shown: calls may name a conversation, lists hardly do
        self._hears = False
        showing.follow(self._follow)

    @property
    def resumable(self) -> bool:
        """Whether the upstream's own places in its streams pass to the client."""
        return self._whole.resumable

    def received(
        self, message: Message, sink: ReplySink, headers: Mapping[bytes, bytes] = NO_HEADERS, *, resumable: bool = False
    ) -> Underway | None:
        """Take a message of the client."""
        refused = self._showing.misreading(message)
        if refused is not None:
            if message.is_request:
                sink.replied(refused, 400)
            return None
        if message.id is None or message.method is None:
            if not (self._own and message.method == "notifications/cancelled" and self._cancelled(message)):
                self._whole.received(message, sink)
            return None
        if self._own and jsonrpc.id_key(message.id) in self._own:
            sink.replied(jsonrpc.error(message.id, jsonrpc.INVALID_REQUEST, "Invalid request: the id is in use"), 400)
            return None
        if message.method == "tools/list":
            if self._showing.adds:
                sink = Completed(sink, self._showing.completed)
            return self._list(message, sink, headers, resumable=resumable)
        if message.method == "tools/call":
            return self._call(message, sink, headers, resumable=resumable)
        if message.method == "initialize":
            sink = Relay(sink, self._greeting)
        return self._whole.received(message, sink, headers, resumable=resumable)

    def listen(self, *, listening: bool) -> None:
        """Pass on what was kept, and ask the upstream for more."""
        if listening:
            self._news.listening()
        self._whole.listen(listening=listening)

    def resume(self, last_event_id: bytes, stream: Stream) -> None:
        """Ask the upstream for the rest of a stream; whoever guesses a place in the stream of a list learns no more."""
        session = self._whole.session
        checked = Resumed(stream, lambda answer: self._showing.without_denied(session, answer))
        self._whole.resume(last_event_id, checked)

    @property
    def session(self) -> Session:
        """The session as known now."""
        return self._whole.session

    @property
    def tickets(self) -> Mapping[str, bytes]:
        """What names the sessions that servers gave."""
        return self._whole.tickets

    def adopt(self, carried: Carried) -> bool:
        """Go on with a connection that another process began."""
        return self._whole.adopt(carried)

    def moved_on(self) -> None:
        """The client may have listed at another process."""
        self._news.listed()

    def heard(self, notice: Message) -> None:
        """Another process was told that a list changed."""
        self._whole.heard(notice)

    def let_go(self) -> None:
        """Other processes go on with the connection."""
        self._whole.let_go()

    async def close(self) -> None:
        """The connection ended."""
        self._showing.unfollow(self._follow)
        if self._meta_calls is not None:
            await self._meta_calls.close()
        for one in list(self._own.values()):
            if isinstance(one, ListWalk):
                one.give_up()
            else:
                one.cancelled()
        await self._whole.close()

    def _list(
        self, message: Message, sink: ReplySink, headers: Mapping[bytes, bytes], *, resumable: bool
    ) -> Underway | None:
        if not self._showing.filtering.is_on:
            return self._pass_list(message, sink, headers, resumable=resumable)
        session = self._session(self._shown_to, parameters.read(message).meta)
        if jsonrpc.members(message.params).get("cursor") is not None:
            return self._whole.received(
                message, Unstreamed(sink, lambda page: self._showing.without_denied(session, page))
            )
        changes = self._changes
        walk = self._walk(
            message,
            sink,
            lambda walk: self._showing.listed(session, walk, lambda catalogue: self._listed(catalogue, changes)),
        )
        self._own[jsonrpc.id_key(message.id or b"null")] = walk
        walk.start()
        return walk

    def _pass_list(
        self, message: Message, sink: ReplySink, headers: Mapping[bytes, bytes], *, resumable: bool
    ) -> Underway | None:
        """Let a list pass untouched; of the first page it is remembered what the client has."""
        if jsonrpc.members(message.params).get("cursor") is None:
            session = self._session(self._shown_to, parameters.read(message).meta)
            sink = Relay(sink, lambda page: self._passed(session, page))
        return self._whole.received(message, sink, headers, resumable=resumable)

    def _passed(self, session: Session, page: Message) -> Message:
        self._news.listed()
        if self._showing.passed(session, page) and self._hears:
            asyncio.get_running_loop().call_soon(self._news.changed)  # after the list
        return page

    @property
    def _shown_to(self) -> Session:
        return self._latest if self._latest is not None and self._latest.ended_at is None else self._whole.session

    def _follow(self, is_another: Callable[[Session], bool]) -> None:
        """Lists may be others now: the client is told if it has one that is."""
        if self._hears and is_another(self._shown_to):
            self._news.changed()

    def _session(self, base: Session, meta: Raw) -> Session:
        """The session that a request names in its `_meta`, else `base`."""
        return self._showing.services.sessions.of_call(base, self._caller, meta) if meta else base

    def _walk(self, message: Message, sink: ReplySink, whole: Callable[[ListWalk], None]) -> ListWalk:
        return ListWalk(
            message,
            sink,
            ask=self._whole.received,
            new_id=self._showing.new_id,
            whole=whole,
            over=lambda walk: self._finished(walk.asked),
        )

    def _listed(self, catalogue: Catalogue, changes: int) -> None:
        """The client gets a list that was asked for after so many changes; one that is torn counts no further."""
        self._catalogue = catalogue if changes == self._changes else None
        self._news.listed()

    def _call(
        self, message: Message, sink: ReplySink, headers: Mapping[bytes, bytes], *, resumable: bool
    ) -> Underway | None:
        given = parameters.read(message)
        name = tool_name(given)
        session = self._latest = self._session(self._whole.session, given.meta)
        if name and self._showing.meta_tools.owns(session, name):
            return self._call_own(message, sink, session, given)
        refused = self._showing.refusal(session, message, self._whole.spellings(name) if name else (), given)
        if refused is not None:
            sink.replied(refused)
            return None
        return self._whole.received(message, sink, headers, resumable=resumable)

    def _call_own(self, message: Message, sink: ReplySink, session: Session, given: parameters.Parameters) -> Underway:
        call = MetaCall(message, sink, on_done=self._over)
        self._own[jsonrpc.id_key(message.id or b"null")] = call

        async def ready() -> None:
            await self._know(session)

        if self._meta_calls is None:
            self._meta_calls = MetaCalls(self._showing, self._whole.spellings)
        self._meta_calls.start(
            call,
            session,
            jsonrpc.text(given.name) or "",
            given,
            ready=ready,
            forward=self._whole.received,
            changed=self._news.changed,
        )
        return call

    async def _know(self, session: Session) -> None:
        """See to it that the list is known that one of riglm's own tools is about."""
        catalogue = self._catalogue or await self._learned()
        if catalogue is not None:
            self._showing.filtering.know(session, catalogue)

    async def _learned(self) -> Catalogue | None:
        """The whole list, asked for on riglm's own account; None when it cannot be had in time."""
        changes = self._changes
        found: list[Catalogue] = []
        await self._showing.fetch(
            jsonrpc.request(self._showing.new_id(), "tools/list"),
            ask=self._whole.received,
            take=found.append,
            withdraw=self._withdraw,
        )
        if found and changes == self._changes:
            self._catalogue = found[0]
        return found[0] if found else None

    def _forget(self) -> None:
        """The upstream's tools changed."""
        self._changes += 1
        self._catalogue = None

    def _greeting(self, answer: Message) -> Message:
        if self._showing.adds:
            answer = offering(answer)
        if self._showing.announces(self._whole.session):
            answer = announcing(answer)
        self._hears = has_announced(answer)
        return answer

    def _cancelled(self, notice: Message) -> bool:
        """Give up what riglm does for a request; whether it did anything for it."""
        one = self._own.get(parameters.cancelled_id(notice) or b"")
        if isinstance(one, ListWalk):
            self._withdraw(one, notice)
        elif one is not None and one.forwarded is None and self._meta_calls is not None:
            self._meta_calls.cancel(one)
        elif one is not None:
            self._whole.received(notice, NOWHERE)
            one.cancelled()
        return one is not None

    def _withdraw(self, walk: ListWalk, notice: Message | None = None) -> None:
        """Give up a list, under the id that its request has upstream."""
        if notice is None or walk.current is not walk.asked:
            params = b'{"requestId":%b,"reason":"nobody waits for it"}' % (walk.current.id or b"null")
            notice = jsonrpc.notification("notifications/cancelled", params)
        self._whole.received(notice, NOWHERE)
        walk.give_up()

    def _over(self, call: Exchange) -> None:
        self._finished(call.message)

    def _finished(self, asked: Message) -> None:
        self._own.pop(jsonrpc.id_key(asked.id or b"null"), None)
