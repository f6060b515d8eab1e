"""What is remembered of each session while it lasts."""

from collections import OrderedDict
from typing import Final

from riglm.domain.session import Session
from riglm.domain.session_state import SessionState

MOST_SESSIONS: Final = 10_000
"""Sessions beyond so many lose what was remembered of them, those that did nothing for the longest time first."""


class SessionStates:
    """The states of the sessions, in memory and bounded."""

    def __init__(self, most: int = MOST_SESSIONS) -> None:
        """Nothing is remembered yet, and at most `most` sessions will be."""
        self._most = most
        self._states: OrderedDict[int, SessionState] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def known(self, session: Session) -> SessionState | None:
        """The state of a session as it is, None when nothing is remembered; asking is no sign of life."""
        return self._states.get(session.id.int)

    def of(self, session: Session) -> SessionState:
        """The state of a session, a new one when nothing is remembered."""
        key = session.id.int  # hashed faster than a UUID, several times for each call
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = SessionState()
            if len(self._states) > self._most:
                self._states.popitem(last=False)
        else:
            self._states.move_to_end(key)
        return state

    def rechoose(self) -> None:
        """Let every list be chosen anew when it is asked for; all else of the sessions stays."""
        for state in self._states.values():
            state.plan = None

    def forget(self, session: Session) -> None:
        """A session ended."""
        self._states.pop(session.id.int, None)
