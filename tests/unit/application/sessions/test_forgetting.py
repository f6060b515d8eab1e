"""Somebody who is forgotten while at work: the work goes on, and nothing of before comes back."""

import pytest

from riglm.application.session_sharing.signing import StateSigner, count_name, drop_sessions, session_name
from riglm.application.sessions.registry import SessionReset
from riglm.domain.prediction import Context
from riglm.domain.retention import ErasureRequest, ErasureScope
from riglm.domain.session import uuid7
from tests.unit.application.session_sharing.test_sharing import GAP, HANDLED, KEY, Flaky, Process, calls


class Remembering(Process):
    """A riglm that lets go of what was forgotten, when it hears of it."""

    def hears(self, session, at=2_000_000_000.0):
        def detach(one):
            self.states.forget(one)

        forgetting = SessionReset(self.sessions, [detach, self.sharing.forgotten])
        strangers = [ErasureRequest(whose=ErasureScope.SESSION, key=key, at=at) for key in (str(uuid7()), "no id")]
        forgetting.heard([*strangers, ErasureRequest(whose=ErasureScope.SESSION, key=str(session.id), at=at)])


@pytest.fixture
def state():
    return Flaky()


@pytest.fixture
def one(state):
    return Remembering(state)


@pytest.fixture
def other(state):
    return Remembering(state)


async def at_work(*processes):
    """A session that is about something, and known to all of them."""

    def says(process):
        def do(session):
            process.states.of(session).context = Context(text="a secret")
            calls(process, "before")(session)

        return do

    sessions = [await process.asked_modern(HANDLED, says(process)) for process in processes]
    return sessions[0]


def remembered(process, session):
    known = process.states.of(session)
    return known.context, known.calls


async def test_a_session_that_is_forgotten_goes_on_from_the_beginning(one, other, state):
    session = await at_work(one, other)
    one.hears(session)
    assert remembered(one, session) == (None, [])
    there = await other.asked_modern(HANDLED, calls(other, "after"))
    assert there.id == session.id, "whoever is at work keeps the session"
    assert remembered(other, there) == (None, ["after"])
    assert there.sequence == 3, "no number is given twice"


async def test_what_a_process_did_not_hear_of_yet_comes_back_nowhere(one, other, state):
    session = await at_work(one, other)
    one.hears(session)
    late = await other.asked_modern(HANDLED, calls(other, "after"))
    other.hears(late)
    newcomer = Process(state)
    found = await newcomer.asked_modern(HANDLED)
    assert remembered(newcomer, found)[0] is None
    assert "before" not in remembered(newcomer, found)[1]


async def test_what_is_kept_of_forgotten_sessions_is_removed_and_nothing_else(one, state):
    mine = await at_work(one)
    its_names = {session_name(StateSigner(KEY), mine.id), count_name(StateSigner(KEY), mine.id)}
    await state.keep("session:of somebody else", b"value", GAP)
    before = set(state._values)
    assert await drop_sessions(state, KEY, [uuid7() for _ in range(150)] + [mine.id]) == 1
    assert before - set(state._values) == before & its_names
    assert session_name(StateSigner(KEY), mine.id) in before
