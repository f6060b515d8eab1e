"""How far a session has come: what it is about, what it used, what it was shown."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.list_plan import ListPlan
from riglm.domain.prediction import Context
from riglm.domain.session import Session
from riglm.domain.tool import PermittedTools

MAX_CALLS: Final = 200
"""The latest calls of a session that are remembered for prediction."""

MAX_USED: Final = 1_000
"""The tools of a session whose last use is remembered."""

MAX_QUERIES: Final = 200
"""The tools of a session of which it is remembered what search found them."""

MAX_QUERY_LENGTH: Final = 2_000
"""Characters of a query that are remembered with what it found."""


class ClientToolList(NamedTuple):
    """The list that a client has: the names of servers' tools, of meta-tools, and the warm set of its preload hints."""

    names: tuple[str, ...]
    own: tuple[str, ...] = ()
    marks: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class SessionState:
    """What prediction and filtering remember of one session while it lasts.

    `turn` counts from 0; `used_in_turn` gives the last turn in which each tool was used, the latest use last, and
    `turn_key` the last key that was seen. `view` is what the session may see of the last catalogue, `plan` what its
    lists hold, `shown` the names of the last list in its order; all None before the first. In shadow
    mode they are hypothetical. `has` is the list that the client has, None when that is not known; a partly known list
    has no names. `searched` are the tools that a search found, `queries` gives the words of
    the last search that found each, the latest last. `suggested` are the tools that riglm added to an answer without
    being asked for them: a call of one counts as listed. `sent` are the tools whose definition was in a result.
    `changes` counts the lists that differed from the one before, `made` all successful calls so far, of which `calls`
    are the latest. `last_at` is the time of the last call or context, in
    seconds since the epoch.
    """

    calls: list[str] = field(default_factory=list)
    context: Context | None = None
    turn: int = 0
    turn_key: str = ""
    used_in_turn: dict[str, int] = field(default_factory=dict)
    view: PermittedTools | None = None
    plan: ListPlan | None = None
    shown: tuple[str, ...] | None = None
    has: ClientToolList | None = None
    searched: set[str] = field(default_factory=set)
    suggested: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    queries: dict[str, str] = field(default_factory=dict)
    changes: int = 0
    made: int = 0
    last_at: float = 0.0

    def called(self, tool: str, at: float, *, success: bool = True) -> None:
        """Note a call; after a failed one the tool is in use, and nothing is predicted from it."""
        if success:
            self.made += 1
            self.calls.append(tool)
            if len(self.calls) > MAX_CALLS:
                del self.calls[:-MAX_CALLS]
        self.used_in_turn.pop(tool, None)
        self.used_in_turn[tool] = self.turn
        if len(self.used_in_turn) > MAX_USED:
            del self.used_in_turn[next(iter(self.used_in_turn))]
        self.last_at = at

    def found(self, query: str, tools: Iterable[str]) -> None:
        """Note what a search found."""
        for tool in tools:
            self.searched.add(tool)
            self.queries.pop(tool, None)
            self.queries[tool] = query
        while len(self.queries) > MAX_QUERIES:
            del self.queries[next(iter(self.queries))]

    def suggest(self, tools: Iterable[str]) -> None:
        """Note tools that riglm added to an answer; one that a search found before still counts as found by search."""
        self.suggested.update(tool for tool in tools if tool not in self.searched)

    def used_lately(self, turns: int) -> set[str]:
        """Return the tools that were used in the last `turns` turns, this one among them."""
        return {tool for tool, turn in self.used_in_turn.items() if self.turn - turn < turns}

    def listed_names(self, *, is_shadow: bool) -> tuple[str, ...] | None:
        """Return the names in the list that the client has, None before the first; in shadow mode it lists all."""
        if self.has is not None:
            return None if self.view is None else self.has.names
        if self.view is None or self.shown is None:
            return None
        return self.view.candidates if is_shadow else self.shown

    def listed(self, names: tuple[str, ...]) -> None:
        """Note the list that was shown."""
        if self.shown is not None and self.shown != names:
            self.changes += 1
        self.shown = names


_TRACE: Final = "traceparent"


def turn_key(meta: Raw | bytes, keys: tuple[str, ...]) -> str:
    """Return the turn key of a call's raw `_meta`; empty if it has none.

    The first of `keys` that is there counts. Of a `traceparent` only the trace is of the turn, the rest is of the call.
    """
    raw = bytes(meta)
    return _turn_key(raw, keys) if len(raw) <= _MAX_KNOWN else _turn_key.__wrapped__(raw, keys)


_MAX_KNOWN: Final = 2048
"""Maximum size in bytes of a `_meta` whose key is kept for the next call."""


@lru_cache(maxsize=32)
def _turn_key(meta: bytes, keys: tuple[str, ...]) -> str:
    fields = jsonrpc.members(meta)
    for key in keys:
        value = jsonrpc.text(fields.get(key))
        if value:
            return f"{key}={_trace_of(value) if key == _TRACE else value}"
    return ""


def _trace_of(value: str) -> str:
    parts = value.split("-")
    return parts[1] if len(parts) > 1 else value


def begins_turn(state: SessionState, key: str, at: float, pause: float) -> bool:
    """Whether a call at the time `at` is the first of a turn: it has a new key, or came after a pause, in seconds.

    A session's first key names the turn that it is in, and begins none.
    """
    if key and state.turn_key and key != state.turn_key:
        return True
    return bool(state.last_at) and at - state.last_at > pause


def begin_turn(state: SessionState) -> None:
    """Count a new turn."""
    state.turn += 1


MAX_SESSIONS: Final = 10_000
"""Maximum number of sessions with state; beyond that the state of the longest idle sessions is discarded."""


class SessionStates:
    """The states of the sessions, in memory and bounded."""

    def __init__(self, most: int = MAX_SESSIONS) -> None:
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
        """Recompute every list at the next request; all other session state is kept."""
        for state in self._states.values():
            state.plan = None

    def forget(self, session: Session) -> None:
        """A session ended."""
        self._states.pop(session.id.int, None)
