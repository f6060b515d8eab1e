"""Several processes with one state: sessions are found, followed and ended, by whoever serves the next request."""

import asyncio
from types import SimpleNamespace

import pytest

from riglm.application.session_sharing.session_sharing_service import build_sharing
from riglm.application.sessions.registry import IdentificationSettings, SessionRegistry
from riglm.domain import jsonrpc, request_params
from riglm.domain.errors import StateUnavailableError
from riglm.domain.session import Session, Transport
from riglm.domain.session_state import SessionStates
from riglm.ports.downstream import Caller
from tests.stores.session_state import InMemorySessionState
from tests.unit.application.fakes import World, asks
from tests.waiting import WAIT_SECONDS

GAP, IDLE = 1800.0, 900.0
KEY = bytes(32)
HELLO = jsonrpc.request(b"0", "initialize", b'{"clientInfo":{"name":"c","version":"1"}}')
ANNA = Caller(transport=Transport.HTTP, principal="anna", address="10.0.0.1")
BERT = Caller(transport=Transport.HTTP, principal="bert", address="10.0.0.1")
HANDLED = Caller(transport=Transport.HTTP, principal="anna", handle="one")
OK = jsonrpc.result(b"1", b"{}")


class Flaky(InMemorySessionState):
    """Out of reach when it is told to be, and may lose an answer: what was asked is done, and nobody hears of it."""

    is_away = False
    loses_answers = False

    def __init__(self):
        super().__init__()
        self.back = asyncio.Event()
        self.back.set()
        for name in ("take", "there", "claim", "number"):
            setattr(self, name, self._reached(getattr(self, name)))

    def _reached(self, do):
        async def checked(*given):
            self._check()
            return await do(*given)

        return checked

    async def swap(self, key, before, value, seconds):
        self._check()
        found = await super().swap(key, before, value, seconds)
        if self.loses_answers:
            raise StateUnavailableError("no answer in time")
        return found

    async def returned(self, seconds):
        await self.back.wait()
        return not self.is_away

    async def keep(self, key, value, seconds):
        if not self.is_away:
            await super().keep(key, value, seconds)

    def _check(self):
        if self.is_away:
            raise StateUnavailableError("away")


class Process(World):
    """One riglm, as far as sharing is concerned."""

    def __init__(self, state, *, filtered=True, key=KEY):
        super().__init__()
        evidence = IdentificationSettings(meta_keys=("threadId",), idle_gap=GAP)
        self.sessions = SessionRegistry(
            self.tracking, self.hasher, evidence, shared=True, monotonic=self.clock, clock=self.clock
        )
        self.states = SessionStates()
        self.contexts = []

        async def set_context(session, state, text):
            self.contexts.append(text)

        filtering = SimpleNamespace(state=self.states.of, predicting=SimpleNamespace(set_context=set_context))
        self.sharing = build_sharing(
            state, key, self.sessions, self.tracking, filtering if filtered else None, link_seconds=IDLE, idle_gap=GAP
        )
        self.handshakes = self.sharing.handshakes

    async def opens(self, session_id=b"id", caller=ANNA):
        """A client shakes hands here."""
        await self.handshakes.keep(session_id, caller, HELLO)

    async def found(self, session_id=b"id", caller=ANNA):
        """What is repeated to the servers when the client's next request comes in here."""
        return [message.line for message in await self.handshakes.find(session_id, caller)]

    async def asked_modern(self, caller, do=id, meta=b"", method="tools/call"):
        """One request of the modern era; its session."""
        said = b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28"%b}' % (b"," + meta[1:-1] if meta else b"")
        message = jsonrpc.request(b"1", method, b'{"name":"t","_meta":%b}' % said)
        envelope = request_params.envelope(message)
        place = self.sessions.place_of_request(caller, envelope.client, envelope.meta)
        visit = self.sharing.visit(place, None, is_call=method == "tools/call")
        await visit.begin()
        session = self.sessions.of_request(caller, envelope.client, envelope.version, envelope.meta)
        do(session)
        assert await visit.end(OK) is OK
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


async def test_a_handshake_is_found_for_its_caller_alone(one, other, state):
    await one.opens()
    assert await other.found() == [HELLO.line]
    assert await other.found(caller=BERT) == []
    assert await other.found(session_id=b"another") == []
    assert await Process(state, key=bytes([1]) * 32).found() == []
    await other.handshakes.delete(b"id")
    assert await one.found() == []


async def test_what_a_client_sets_later_is_repeated_and_the_last_request_about_it_counts(one, other):
    await one.opens()
    level, louder = (asks(2, "logging/setLevel", b'{"level":"%b"}' % level) for level in (b"info", b"debug"))
    first, second = (asks(3, "resources/subscribe", b'{"uri":"%b"}' % uri) for uri in (b"a", b"b"))
    for message in (level, first, second, louder, asks(4, "resources/unsubscribe", b'{"uri":"a"}')):
        await one.handshakes.keep(b"id", ANNA, message)
    await one.handshakes.keep(b"id", BERT, level)
    await one.handshakes.keep(b"unknown", ANNA, level)
    assert await other.found() == [HELLO.line, second.line, louder.line]
    assert await other.found(session_id=b"unknown") == []


async def test_nothing_but_what_a_riglm_stores_is_repeated(one, other, state):
    await one.opens()
    await one.handshakes.keep(b"id", ANNA, asks(2, "tools/call", b'{"name":"rm"}'))
    assert await other.found() == []


async def test_a_handshake_that_is_too_long_stays_with_its_process(one, other):
    long = jsonrpc.request(b"0", "initialize", b'{"x":"%b"}' % (b"x" * (1 << 16)))
    await one.handshakes.keep(b"id", ANNA, long)
    assert await other.found() == []


async def test_while_the_state_is_away_each_goes_on_by_itself_and_the_newest_counts_then(one, other, state):
    await one.asked_modern(HANDLED, calls(one, "a"))
    await other.asked_modern(HANDLED)
    state.is_away = True
    await one.opens()
    session = await one.asked_modern(HANDLED, calls(one, "b"))
    await one.handshakes.prolong([b"id"])
    assert await other.found() == []
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


async def test_hostile_values_do_no_harm(one, other, state, caplog):
    await one.opens()
    await one.asked_modern(HANDLED, calls(one, "a"))
    for key in list(state._values):
        await state.keep(key, b"r1 and then anything", GAP)
    assert await other.found() == []
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
    assert await other.found() == [HELLO.line]


async def test_a_session_that_was_opened_while_the_state_was_away_gives_way_to_the_one_that_is_known(one, other, state):
    first = await one.asked_modern(HANDLED, calls(one, "a"))
    state.is_away = True
    second = await other.asked_modern(HANDLED, calls(other, "b"))
    assert second.id != first.id
    state.is_away = False
    assert (await other.asked_modern(HANDLED)).id == first.id
    assert await one.asked_modern(HANDLED) is first


# --- two processes that serve requests of one session at the same time: nothing of either is lost or given twice ---


def remembered(process, session):
    return process.states.of(session).calls


async def known_with(tool, process):
    """What was called in the session, once a process knows of a call of this tool."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            session = await process.asked_modern(HANDLED, method="tools/list")
            if tool in remembered(process, session):
                return set(remembered(process, session))
            await asyncio.sleep(0)


async def begun(*processes):
    """A session that all of them know."""
    return [await process.asked_modern(HANDLED, calls(process, "first")) for process in processes][-1]


async def test_what_happened_while_the_state_was_away_is_joined_when_it_is_back(one, other, state):
    await begun(one, other)
    state.is_away = True
    state.back.clear()
    here = await one.asked_modern(HANDLED, calls(one, "here"))
    there = await other.asked_modern(HANDLED, calls(other, "there"))
    assert (remembered(one, here)[-1], remembered(other, there)[-1]) == ("here", "there")
    state.is_away = False
    state.back.set()
    newcomer = Process(state)
    await known_with("here", newcomer)
    assert await known_with("there", newcomer) == {"first", "here", "there"}


async def test_what_was_kept_without_an_answer_and_changed_by_others_since_is_not_there_twice(one, other, state):
    session = await begun(one, other)
    await one.asked_modern(HANDLED, method="tools/list")
    state.loses_answers = True
    await one.asked_modern(HANDLED, calls(one, "a"))
    state.loses_answers = False
    await other.asked_modern(HANDLED, calls(other, "b"))
    session = await one.asked_modern(HANDLED, calls(one, "c"))
    assert remembered(one, session) == ["first", "first", "a", "b", "c"]
    assert one.states.of(session).made == 5
    there = await other.asked_modern(HANDLED, method="tools/list")
    assert remembered(other, there) == ["first", "first", "a", "b", "c"]


async def test_an_older_state_than_the_one_that_is_known_counts_no_more(one, other, state):
    session = await begun(one, other)
    old = dict(state._values)
    await other.asked_modern(HANDLED, calls(other, "new"))
    state._values.update(old)
    await other.asked_modern(HANDLED, method="tools/list")
    assert remembered(other, session)[-1] == "new"
    here = await one.asked_modern(HANDLED, method="tools/list")
    assert remembered(one, here)[-1] == "new", "it was kept again"
