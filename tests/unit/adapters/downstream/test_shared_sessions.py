"""Sessions that other processes serve as well: who keeps them, who ends them, and who is told what."""

import asyncio

import pytest

from riglm.adapters.mcp.downstream.http_sessions import SharedHttpSessions
from riglm.domain.errors import SessionEndedError
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller, SessionSharing
from tests.unit.adapters.downstream.inside import Inside, Talk

CALLER = Caller(transport=Transport.HTTP, principal="anna")


class SharedTalk(Talk):
    """A conversation that can be left to others."""

    left = False

    def heard(self, notice):
        self.channel.push(notice)

    def detach(self):
        self.left = True


class SharedInside(Inside):
    def converse(self, caller, channel):
        self.talks.append(SharedTalk(self, caller, channel))
        return self.talks[-1]


class Sharing(SessionSharing):
    """Knows of connections what it is told to know, and keeps what it is told."""

    def __init__(self):
        self.known = {}
        self.told = []
        self.ended_ids = []
        self.left_ids = []
        self.opened_ids = []
        self.prolonged = []
        self.refuses = False
        self.gone = False
        self.alive = True
        self.introduced = []

    async def opening(self, caller):
        pass

    async def opened(self, session_id, caller, handshake, conversation):
        self.opened_ids.append(session_id)

    async def find(self, session_id, caller):
        await asyncio.sleep(0)
        return self.known.get((session_id, caller.principal))

    async def resume(self, session_id, handoff, conversation, *, introduce=True):
        self.introduced.append(introduce)
        return not self.refuses

    async def arrives(self, session_id, message, caller, conversation):
        if self.gone:
            raise SessionEndedError

    async def modern_arrives(self, message, envelope, caller):
        return None

    async def ended(self, session_id):
        self.ended_ids.append(session_id)

    async def lives(self, session_ids, *, longer):
        if longer:
            self.prolonged.append(list(session_ids))
        return [self.alive] * len(session_ids)

    def left(self, session_id):
        self.left_ids.append(session_id)

    def notify(self, session_id, news):
        self.told.append((session_id, news))

    def listen(self, listener):
        self.listener = listener


class Stage:
    def __init__(self, *, most=10, idle=100.0):
        self.inside = SharedInside()
        self.sharing = Sharing()
        self.sessions = SharedHttpSessions(self.inside, self.sharing, idle_seconds=idle, most=most)

    async def closed(self, count=1):
        """The conversations that are closed, once there are so many."""
        await self.inside.script.until(lambda: sum(talk.closed for talk in self.inside.talks) >= count)
        return [talk for talk in self.inside.talks if talk.closed]


@pytest.fixture
def stage():
    return Stage()


async def test_without_room_the_longest_idle_session_is_left_to_the_others():
    stage = Stage(most=1)
    first = stage.sessions.open(CALLER)
    second = stage.sessions.open(CALLER)
    [talk] = await stage.closed()
    assert talk.left
    assert stage.sharing.left_ids == [first.id]
    second.ask((None, b"1"))
    stage.sharing.known[b"id", "anna"] = object()
    assert await stage.sessions.take_over(b"id", CALLER) is None, "all are in use"


@pytest.mark.parametrize("alive", [True, False])
async def test_an_idle_session_ends_only_if_no_process_uses_it(alive):
    stage = Stage(idle=0.0)
    stage.sharing.alive = alive
    stage.sessions.open(CALLER).last_used -= 1
    await stage.sessions.reap()
    [talk] = await stage.closed()
    assert talk.left is alive
