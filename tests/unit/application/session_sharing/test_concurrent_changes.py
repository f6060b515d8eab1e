"""Two processes that serve requests of one session at the same time: nothing of either is lost or given twice."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from riglm.domain import jsonrpc, request_params
from riglm.domain.errors import SessionEndedError, StateUnavailableError
from riglm.domain.prediction import Context
from tests.unit.application.fakes import Sink, asks
from tests.unit.application.session_sharing.test_sharing import ANNA, HANDLED, OK, Flaky, Process, calls
from tests.waiting import WAIT_SECONDS

CALL = jsonrpc.request(
    b"1", "tools/call", b'{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}'
)


class Leaving(Flaky):
    """Comes back when it is told to, and may lose an answer: what was asked is done, and nobody hears of it."""

    loses_answers = False

    def __init__(self):
        super().__init__()
        self.back = asyncio.Event()

    async def swap(self, key, before, value, seconds):
        found = await super().swap(key, before, value, seconds)
        if self.loses_answers:
            raise StateUnavailableError("no answer in time")
        return found

    async def returned(self, seconds):
        await self.back.wait()
        return not self.is_away


@pytest.fixture
def state():
    return Leaving()


@pytest.fixture
def one(state):
    return Process(state)


@pytest.fixture
def other(state):
    return Process(state)


@asynccontextmanager
async def serving(process, caller=HANDLED, message=CALL):
    """A request of the modern era that is under way; its session."""
    envelope = request_params.envelope(message)
    part = await process.sharing.modern_arrives(message, envelope, caller)
    yield process.sessions.of_request(caller, envelope.client, envelope.version, envelope.meta)
    await part(OK)


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


async def test_a_context_is_not_undone_by_a_call_that_was_under_way(one, other):
    await begun(one, other)
    async with serving(one) as here:
        calls(one, "late")(here)
        async with serving(other) as there:
            other.states.of(there).context = Context(text="about")
    for process in (one, other):
        session = await process.asked_modern(HANDLED, method="tools/list")
        assert process.states.of(session).context.text == "about"
        assert "late" in remembered(process, session)
    assert one.contexts == ["about"]


async def test_what_happened_while_the_state_was_away_is_joined_when_it_is_back(one, other, state):
    await begun(one, other)
    state.is_away = True
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


async def test_what_was_lost_on_the_way_is_there_once_after_others_changed_the_session(one, other, state):
    await begun(one, other)
    await one.asked_modern(HANDLED, method="tools/list")
    state.loses_answers = True
    await one.asked_modern(HANDLED, calls(one, "kept"))
    state.loses_answers, state.is_away = False, True
    await one.asked_modern(HANDLED, calls(one, "lost"))
    state.is_away = False
    await other.asked_modern(HANDLED, calls(other, "b"))
    session = await one.asked_modern(HANDLED, calls(one, "c"))
    assert remembered(one, session) == ["first", "first", "kept", "b", "lost", "c"]


async def test_a_session_that_others_change_all_the_time_is_kept_in_the_end(one, other, state):
    await begun(one, other)
    swap = Leaving.swap
    rounds = 7

    async def outrun(key, before, value, seconds):
        nonlocal rounds
        if key.startswith("session") and rounds:
            rounds -= 1
            async with serving(other) as there:
                calls(other, f"other-{rounds}")(there)
        return await swap(state, key, before, value, seconds)

    faster = Leaving()
    faster._values, faster.swap = state._values, outrun
    faster.back.set()
    one.sharing._sessions._state = faster
    session = await one.asked_modern(HANDLED, calls(one, "mine"))
    assert "mine" in remembered(one, session)
    assert {"mine", *(f"other-{number}" for number in range(7))} <= await known_with("mine", other)


async def test_what_clients_subscribe_to_at_two_processes_at_once_is_all_told_to_a_third(one, other, state):
    here = await one.opens()
    there = await other.takes_over()
    for process, conversation, uri in ((one, here, b"a"), (other, there, b"b")):
        message = asks(2, "resources/subscribe", b'{"uri":"%b"}' % uri)
        process.before_response = await process.sharing.arrives(b"id", message, ANNA, conversation)
        conversation.received(message, Sink())
    await one.before_response(OK)
    await other.before_response(OK)
    third = Process(state)
    assert await third.takes_over() is not None
    assert [bytes(asked.message.params) for asked in third.server.link.of("resources/subscribe")] == [
        b'{"uri":"a"}',
        b'{"uri":"b"}',
    ]
    await one.asked(here, asks(3, "tools/list"))
    assert len(one.server.link.of("resources/subscribe")) == 2, "the server of the other process is told as well"


async def test_a_connection_that_ended_meanwhile_is_not_opened_again_by_what_was_under_way(one, other):
    here = await one.opens()
    await other.takes_over()
    message = asks(2, "resources/subscribe", b'{"uri":"a"}')
    part = await one.sharing.arrives(b"id", message, ANNA, here)
    await other.sharing.ended(b"id")
    await part(OK)
    with pytest.raises(SessionEndedError):
        await one.sharing.arrives(b"id", asks(3, "tools/list"), ANNA, here)


async def test_an_older_state_than_the_one_that_is_known_counts_no_more(one, other, state):
    session = await begun(one, other)
    old = dict(state._values)
    await other.asked_modern(HANDLED, calls(other, "new"))
    state._values.update(old)
    await other.asked_modern(HANDLED, method="tools/list")
    assert remembered(other, session)[-1] == "new"
    here = await one.asked_modern(HANDLED, method="tools/list")
    assert remembered(one, here)[-1] == "new", "it was kept again"
