"""Replay: the training examples of recorded sessions, for a predictor that starts."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from riglm.domain.learning import SIGNALS
from riglm.domain.naming import SEPARATOR
from riglm.domain.prediction import Situation
from riglm.domain.session_state import MOST_CALLS
from riglm.ports.analytics import RecordedSession

MAX_CALLS: Final = 1_000
"""Maximum number of calls to replay: `hybrid` takes nearly a millisecond for each, at every start."""

MAX_CANDIDATES: Final = 500_000
"""Maximum number of candidates of all replayed calls together; older sessions are replayed without their catalogs."""


class TrainingExample(NamedTuple):
    """A call of `tool` in `situation`; `has_catalog` is True if the candidates are all tools that the session had."""

    situation: Situation
    tool: str
    signal: float
    has_catalog: bool


def latest(
    history: Sequence[RecordedSession], most: int = MAX_CALLS, most_candidates: int = MAX_CANDIDATES
) -> list[RecordedSession]:
    """Return the latest sessions, oldest first, with their last successful calls, at most `most` together.

    Sessions whose calls have more than `most_candidates` candidates, counted from the latest on, lose their catalogs.
    """
    found: list[RecordedSession] = []
    for session in reversed(history):
        if most <= 0:
            break
        calls = session.successes[-most:]
        most -= len(calls)
        most_candidates -= len(calls) * len(session.tools_available)
        tools = session.tools_available if most_candidates >= 0 else ()
        found.append(replace(session, calls=calls, tools_available=tools))
    return found[::-1]


def training_examples(history: Sequence[RecordedSession], owner: Callable[[str], str]) -> Iterator[TrainingExample]:
    """Yield the successful calls of recorded sessions in order, as they were when they were made.

    Where the tools of a session are not known, the candidates are the tools that were called in any session. `owner`
    returns the upstream server of a tool, empty if it is not known yet.
    """
    servers = {call.tool: call.upstream for session in history for call in session.calls}
    called = tuple(servers)
    for session in history:
        for tool in session.tools_available:
            if tool not in servers:
                servers[tool] = owner(tool) or _prefix(tool)
        before: deque[str] = deque(maxlen=MOST_CALLS)
        for call in session.successes:
            situation = Situation(
                candidates=session.tools_available or called,
                calls=tuple(before),
                servers=servers,
                principal=session.principal,
                client=session.client,
                time=call.timestamp,
            )
            yield TrainingExample(situation, call.tool, SIGNALS[call.found], bool(session.tools_available))
            before.append(call.tool)


def _prefix(tool: str) -> str:
    """The upstream server that a tool's name begins with, empty if there is none."""
    server, separator, _ = tool.partition(SEPARATOR)
    return server if separator else ""
