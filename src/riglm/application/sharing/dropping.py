"""What is kept of sessions for other processes, removed by whoever knows their ids."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from riglm.application.sharing.sealing import Sealer
from riglm.domain.errors import StateUnavailable
from riglm.ports.session_state import SessionStatePort

_AT_ONCE: Final = 100
_ATTEMPTS: Final = 5
_WAITING_SECONDS: Final = 2.0


def session_name(sealer: Sealer, session_id: UUID) -> str:
    """The key of a session, and of how far it has come."""
    return sealer.name("session", session_id.bytes)


def count_name(sealer: Sealer, session_id: UUID) -> str:
    """The key of the number of a session's calls."""
    return sealer.name("count", session_id.bytes)


async def drop_sessions(state: SessionStatePort, secret: bytes, sessions: Sequence[UUID]) -> int:
    """Remove all that is kept by session, and give the number of sessions of which something was.

    Raises:
        StateUnavailable: that cannot be made sure.
    """
    sealer, there = Sealer(secret), 0
    for start in range(0, len(sessions), _AT_ONCE):
        some = sessions[start : start + _AT_ONCE]
        names = [session_name(sealer, each) for each in some]
        there += sum(await _there(state, names))
        await state.drop([*names, *(count_name(sealer, each) for each in some)])
        if any(await _there(state, names)):
            raise StateUnavailable("what is kept of sessions could not be removed")
    return there


async def _there(state: SessionStatePort, names: Sequence[str]) -> list[bool]:
    for _ in range(_ATTEMPTS):
        try:
            return await state.there(names)
        except StateUnavailable:
            await state.returned(_WAITING_SECONDS)
    return await state.there(names)
