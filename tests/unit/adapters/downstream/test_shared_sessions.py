"""Sessions that other processes serve as well: who keeps them and who ends them."""

from unittest.mock import create_autospec

import pytest

from riglm.adapters.mcp.downstream.http_sessions import SharedHttpSessions
from riglm.domain.session import Transport
from riglm.ports.downstream import Caller, SessionSharing
from tests.unit.adapters.downstream.inside import Inside, Talk

CALLER = Caller(transport=Transport.HTTP, principal="anna")


class SharedTalk(Talk):
    """A conversation that can be left to others."""

    left = False

    def detach(self):
        self.left = True


class SharedInside(Inside):
    def converse(self, caller, channel):
        self.talks.append(SharedTalk(self, caller, channel))
        return self.talks[-1]


class Stage:
    def __init__(self, *, most=10, idle=100.0, is_alive=True):
        self.inside = SharedInside()
        self.sharing = create_autospec(SessionSharing, instance=True)
        self.sharing.lives.side_effect = lambda session_ids, **_: [is_alive] * len(session_ids)
        self.sessions = SharedHttpSessions(self.inside, self.sharing, idle_seconds=idle, most=most)

    async def closed(self):
        """The conversation that is closed."""
        await self.inside.script.until(lambda: any(talk.closed for talk in self.inside.talks))
        [talk] = [talk for talk in self.inside.talks if talk.closed]
        return talk


async def test_without_room_the_longest_idle_session_is_left_to_the_others():
    stage = Stage(most=1)
    first, second = (stage.sessions.open(CALLER) for _ in range(2))
    assert (await stage.closed()).left
    stage.sharing.left.assert_called_once_with(first.id)
    second.ask((None, b"1"))
    stage.sharing.find.return_value = object()
    assert await stage.sessions.take_over(b"id", CALLER) is None, "all are in use"


@pytest.mark.parametrize("is_alive", [True, False])
async def test_an_idle_session_ends_only_if_no_process_uses_it(is_alive):
    stage = Stage(idle=0.0, is_alive=is_alive)
    stage.sessions.open(CALLER).last_used -= 1
    await stage.sessions.reap()
    assert (await stage.closed()).left is is_alive
