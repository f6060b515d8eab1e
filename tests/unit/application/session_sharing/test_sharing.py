"""Several processes with one state: sessions are found, followed and ended, by whoever serves the next request."""

import asyncio
from types import SimpleNamespace

import pytest

from riglm.application.connections.single_server import SingleServerConnection
from riglm.application.forwarding.services import RequestServices
from riglm.application.session_sharing.service import build_sharing
from riglm.application.sessions.registry import IdentificationSettings, SessionRegistry
from riglm.domain import jsonrpc, request_params
from riglm.domain.errors import SessionEndedError, StateUnavailableError
from riglm.domain.prediction import Context
from riglm.domain.session import Session, Transport
from riglm.domain.session_state import SessionStates
from riglm.ports.downstream import ENDED, LISTENING, Caller, NewsListener
from tests.stores.session_state import InMemorySessionState
from tests.unit.application.fakes import Channel, Server, Sink, World, asks, opened
from tests.waiting import WAIT_SECONDS

GAP, IDLE = 1800.0, 900.0
KEY = bytes(32)
HELLO = jsonrpc.request(b"0", "initialize", b'{"clientInfo":{"name":"c","version":"1"}}')
ANNA = Caller(transport=Transport.HTTP, principal="anna", address="10.0.0.1")
BERT = Caller(transport=Transport.HTTP, principal="bert", address="10.0.0.1")
HANDLED = Caller(transport=Transport.HTTP, principal="anna", handle="one")
OK = jsonrpc.result(b"1", b"{}")
TALK = b'{"threadId":"one"}'


class Flaky(InMemorySessionState):
    """Out of reach when it is told to be."""

    is_away = False

    async def take(self, keys, seconds):
        self._check()
        return await super().take(keys, seconds)

    async def there(self, keys):
        self._check()
        return await super().there(keys)

    async def claim(self, key, value, seconds):
        self._check()
        return await super().claim(key, value, seconds)

    async def swap(self, key, before, value, seconds):
        self._check()
        return await super().swap(key, before, value, seconds)

    async def number(self, key, beyond, seconds):
        self._check()
        return await super().number(key, beyond, seconds)

    async def returned(self, seconds):
        return not self.is_away

    async def keep(self, key, value, seconds):
        if not self.is_away:
            await super().keep(key, value, seconds)

    def _check(self):
        if self.is_away:
            raise StateUnavailableError("away")


class Process(World, NewsListener):
    """One riglm, as far as sharing is concerned; `news` is what it heard of its connections."""

    def __init__(self, state, *, filtered=True, key=KEY):
        super().__init__()
        evidence = IdentificationSettings(meta_keys=("threadId",), idle_gap=GAP)
        self.sessions = SessionRegistry(
            self.tracking, self.hasher, evidence, shared=True, monotonic=self.clock, clock=self.clock
        )
        services = self.services
        self.services = RequestServices(tracking=self.tracking, sessions=self.sessions, catalogs=services.catalogs)
        self.states = SessionStates()
        self.contexts = []
        self.news = []
        answers = {"initialize": opened(), "logging/setLevel": b"{}", "resources/subscribe": b"{}"}
        self.server = Server("up", answers, modern=False)

        async def said(session, state, text):
            self.contexts.append(text)

        filtering = SimpleNamespace(state=self.states.of, predicting=SimpleNamespace(set_context=said))
        self.sharing = build_sharing(
            state,
            key,
            self.sessions,
            self.tracking,
            filtering if filtered else None,
            link_seconds=IDLE,
            session_seconds=GAP,
        )
        self.sharing.listen(self)

    def heard(self, session_id, news):
        self.news.append((session_id, news))

    def conversation(self, caller=ANNA):
        return SingleServerConnection(self.services, self.server, caller, Channel())

    async def opens(self, session_id=b"id", caller=ANNA):
        """A client shakes hands here."""
        conversation = self.conversation(caller)
        await self.sharing.opening(caller)
        conversation.received(HELLO, Sink())
        await self.sharing.opened(session_id, caller, HELLO, conversation)
        return conversation

    async def takes_over(self, session_id=b"id", caller=ANNA):
        """The client's next request comes in here."""
        handoff = await self.sharing.find(session_id, caller)
        if handoff is None:
            return None
        conversation = self.conversation(caller)
        return conversation if await self.sharing.resume(session_id, handoff, conversation) else None

    async def asked(self, conversation, message, session_id=b"id", caller=ANNA, do=id):
        """One request in the handshake era; `do` happens in the session of the connection meanwhile."""
        part = await self.sharing.arrives(session_id, message, caller, conversation)
        conversation.received(message, Sink())
        do(conversation.session)
        if part is not None:
            await part(OK)

    async def asked_modern(self, caller, do=id, meta=b"", method="tools/call"):
        """One request of the modern era; its session."""
        said = b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28"%b}' % (b"," + meta[1:-1] if meta else b"")
        message = jsonrpc.request(b"1", method, b'{"name":"t","_meta":%b}' % said)
        envelope = request_params.envelope(message)
        part = await self.sharing.modern_arrives(message, envelope, caller)
        session = self.sessions.of_request(caller, envelope.client, envelope.version, envelope.meta)
        do(session)
        if part is not None:
            await part(OK)
        return session


@pytest.fixture
def state():
    return Flaky()


@pytest.fixture
def one(state):
    return Process(state)


@pytest.fixture
def other(state):
    return Process(state)


def calls(process, tool):
    def do(session):
        session.next_sequence_number()
        process.states.of(session).called(tool, process.clock())

    return do


@pytest.mark.parametrize(
    ("caller", "meta"), [(HANDLED, b""), (ANNA, b""), (ANNA, TALK), (Caller(transport=Transport.HTTP), b"")]
)
async def test_requests_of_one_piece_of_work_are_one_session_wherever_they_come_in(one, other, caller, meta):
    first = await one.asked_modern(caller, calls(one, "a"), meta)
    second = await other.asked_modern(caller, calls(other, "b"), meta)
    third = await one.asked_modern(caller, calls(one, "c"), meta)
    assert first is third
    assert (second.id, second.started_at, second.method) == (first.id, first.started_at, first.method)
    assert one.states.of(third).calls == ["a", "b", "c"]
    assert third.sequence == 3, "invocations are counted through"
    assert other.records.opened == set(), "it was recorded where it was opened"


async def test_sessions_of_others_stay_theirs(one, other):
    anna = await one.asked_modern(ANNA, calls(one, "a"), TALK)
    bert = await other.asked_modern(BERT, calls(other, "b"), TALK)
    assert anna.id != bert.id
    assert other.states.of(bert).calls == ["b"]


async def test_a_context_that_was_said_elsewhere_is_embedded_here_once(one, other):
    def say(session):
        one.states.of(session).context = Context(text="about")

    await one.asked_modern(HANDLED, say)
    for _ in range(2):
        session = await other.asked_modern(HANDLED)
        await asyncio.sleep(0)
    assert other.contexts == ["about"]
    assert other.states.of(session).context.text == "about"


async def test_a_connection_is_introduced_to_the_server_of_the_next_process(one, other):
    conversation = await one.opens()
    await one.asked(conversation, asks(1, "logging/setLevel", b'{"level":"debug"}'))
    await one.asked(conversation, asks(2, "resources/subscribe", b'{"uri":"a"}'))
    there = await other.takes_over()
    assert there is not None
    assert there.session.id == conversation.session.id
    assert other.server.link.methods == ["initialize", "logging/setLevel", "resources/subscribe"]
    assert other.server.link.asked[0].message.params == HELLO.params
    assert [jsonrpc.decode(line).method for line in other.server.link.sent] == ["notifications/initialized"]
    await one.asked(conversation, asks(3, "logging/setLevel", b'{"level":"error"}'))
    await other.asked(there, asks(4, "tools/list"))
    repeated = other.server.link.of("logging/setLevel")[-1]
    assert bytes(repeated.message.params) == b'{"level":"error"}'


async def test_a_connection_is_nobody_else_s(one, other, state):
    await one.opens()
    assert await other.takes_over(caller=BERT) is None
    assert await other.takes_over(session_id=b"another") is None
    assert await Process(state, key=bytes([1]) * 32).takes_over() is None


async def test_a_server_that_refuses_the_handshake_is_not_gone_on_with(one, other):
    await one.opens()
    for method in ("initialize", "server/discover"):
        other.server.answers[method] = lambda asked: asked.error(-32603)
    assert await other.takes_over() is None


async def test_an_ended_connection_is_ended_for_all_and_they_hear_of_it(one, other):
    conversation = await one.opens()
    there = await other.takes_over()
    await other.sharing.ended(b"id")
    async with asyncio.timeout(WAIT_SECONDS):
        while not one.news:
            await asyncio.sleep(0)
    assert one.news == [(b"id", ENDED)]
    with pytest.raises(SessionEndedError):
        await one.sharing.arrives(b"id", asks(1, "tools/list"), ANNA, conversation)
    assert await one.takes_over() is None
    assert there is not None


async def test_that_an_open_connection_ended_is_not_believed(one, other):
    await one.opens()
    await other.takes_over()
    other.sharing.notify(b"id", ENDED)
    other.sharing.notify(b"id", LISTENING)
    async with asyncio.timeout(WAIT_SECONDS):
        while not one.news:
            await asyncio.sleep(0)
    assert one.news == [(b"id", LISTENING)]


async def test_leaving_a_connection_to_others_records_no_end(one, other):
    conversation = await one.opens()
    session_id = conversation.session.id
    there = await other.takes_over()
    conversation.detach()
    await conversation.close()
    one.sharing.left(b"id")
    assert one.records.closed == []
    assert there is not None
    await there.close()
    assert other.records.closed == [session_id]


async def test_a_state_that_was_emptied_is_filled_again(one, other, state):
    conversation = await one.opens()
    state._values.clear()
    assert await other.takes_over() is None
    await one.asked(conversation, asks(1, "tools/list"), do=calls(one, "a"))
    assert await other.takes_over() is not None


async def test_while_the_state_is_away_each_goes_on_by_itself_and_the_newest_counts_then(one, other, state):
    await one.asked_modern(HANDLED, calls(one, "a"))
    await other.asked_modern(HANDLED)
    state.is_away = True
    conversation = await one.opens()
    session = await one.asked_modern(HANDLED, calls(one, "b"))
    await one.asked(conversation, asks(1, "tools/list"))
    assert await one.sharing.lives([b"id"], longer=False) == [True]
    assert await other.takes_over() is None
    await one.sharing.sweep()
    state.is_away = False
    await one.asked_modern(HANDLED, calls(one, "c"))
    assert one.states.of(session).calls == ["a", "b", "c"]
    there = await other.asked_modern(HANDLED)
    assert other.states.of(there).calls == ["a", "b", "c"]


async def test_a_silent_session_ends_when_no_process_has_heard_of_it(one, other, state):
    session = await one.asked_modern(HANDLED, calls(one, "a"))
    one.clock.now += GAP + 1
    await other.asked_modern(HANDLED)
    await one.sharing.sweep()
    assert one.records.closed == [], "the other process has heard of it"
    one.clock.now += GAP + 1
    state._values.clear()
    await one.sharing.sweep()
    assert one.records.closed == [session.id]


async def test_at_the_end_sessions_are_left_to_the_others(one):
    await one.asked_modern(HANDLED)
    one.sessions.close()
    assert one.records.closed == []
    assert len(one.sessions) == 0


async def test_a_conversation_key_in_a_call_names_one_session_across_connections(one, other):
    conversation = await one.opens()
    call = asks(1, "tools/call", b'{"name":"t","_meta":%b}' % TALK)
    await one.asked(conversation, call, do=calls(one, "a"))
    elsewhere = await other.asked_modern(ANNA, calls(other, "b"), TALK)
    assert elsewhere.id == conversation.session.id
    assert other.states.of(elsewhere).calls == ["a", "b"]


async def test_a_handle_names_the_session_of_a_connection(one, other):
    conversation = await one.opens(caller=HANDLED)
    assert (await other.opens(session_id=b"second", caller=HANDLED)).session.id == conversation.session.id
    assert (await other.asked_modern(HANDLED)).id == conversation.session.id


async def test_without_a_filter_sessions_are_one_all_the_same(state):
    one, other = Process(state, filtered=False), Process(state, filtered=False)
    first = await one.asked_modern(HANDLED, lambda session: session.next_sequence_number())
    second = await other.asked_modern(HANDLED, lambda session: session.next_sequence_number())
    assert first.id == second.id
    assert second.sequence == 2


async def test_what_changes_nothing_is_not_kept_again(one, state):
    session = await one.asked_modern(HANDLED, calls(one, "a"))
    before = dict(state._values)
    assert await one.asked_modern(HANDLED, method="tools/list") is session
    assert {key: value for key, (value, _) in state._values.items()} == {
        key: value for key, (value, _) in before.items()
    }


async def test_hostile_values_do_no_harm(one, other, state, caplog):
    await one.opens()
    await one.asked_modern(HANDLED, calls(one, "a"))
    for key in list(state._values):
        await state.keep(key, b"r1 and then anything", GAP)
    assert await other.takes_over() is None
    assert isinstance(await other.asked_modern(HANDLED, calls(other, "b")), Session)
    await state.notify(b"r1 news of nobody")
    assert "ignored a value of shared state" in caplog.text


async def test_a_process_with_another_key_is_noticed(one, state, caplog):
    await one.sharing.begin()
    assert caplog.text == ""
    stranger = Process(state, key=bytes([1]) * 32)
    await stranger.sharing.begin()
    assert "privacy.key" in caplog.records[0].__dict__["reason"]


class Briefly(Flaky):
    """Back as soon as somebody waits for it."""

    async def returned(self, seconds):
        self.is_away = False
        return True


async def test_a_connection_that_is_not_known_here_is_worth_a_moment_s_waiting():
    state = Briefly()
    one, other = Process(state), Process(state)
    await one.opens()
    state.is_away = True
    assert await other.takes_over() is not None


async def test_a_session_that_was_opened_while_the_state_was_away_gives_way_to_the_one_that_is_known(one, other, state):
    first = await one.asked_modern(HANDLED, calls(one, "a"))
    state.is_away = True
    second = await other.asked_modern(HANDLED, calls(other, "b"))
    assert second.id != first.id
    state.is_away = False
    assert (await other.asked_modern(HANDLED)).id == first.id
    assert await one.asked_modern(HANDLED) is first
