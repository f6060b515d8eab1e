"""Recorded sessions, once more past a predictor that starts."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from riglm.domain.learning import SIGNALS
from riglm.domain.prediction import Situation
from riglm.domain.session_state import MOST_CALLS
from riglm.ports.analytics import RecordedSession
from riglm.ports.predictor import PredictorPort

MOST_REPLAYED: Final = 2_000
"""Calls that are learned from once more: `hybrid` takes nearly a millisecond for each, at every start."""


def latest(history: Sequence[RecordedSession], most: int = MOST_REPLAYED) -> list[RecordedSession]:
    """The latest sessions, oldest first, with so many calls at most; the first of them may lack its beginning."""
    found: list[RecordedSession] = []
    for session in reversed(history):
        if most <= 0:
            break
        found.append(replace(session, calls=session.calls[-most:]))
        most -= len(session.calls)
    return found[::-1]


def replaying(history: Sequence[RecordedSession], predictor: PredictorPort) -> Iterator[str]:
    """Teach `predictor` the calls of recorded sessions, in order, and give the tool of each one when it was taught.

    The candidates are the tools that were called in any of them: what else there was matters little by now.
    """
    servers = {call.tool: call.upstream for session in history for call in session.calls}
    candidates = tuple(servers)
    for session in history:
        before: deque[str] = deque(maxlen=MOST_CALLS)
        for call in session.calls:
            situation = Situation(
                candidates=candidates,
                calls=tuple(before),
                servers=servers,
                principal=session.principal,
                client=session.client,
                time=call.timestamp,
            )
            predictor.learn(situation, call.tool, SIGNALS[call.found])
            before.append(call.tool)
            yield call.tool
