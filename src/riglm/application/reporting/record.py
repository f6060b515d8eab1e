"""What was recorded of lists: those that clients were shown, and those that shadow mode would have shown."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from uuid import UUID

from riglm.domain.exposure import Exposure, Mode
from riglm.domain.invocation import Found
from riglm.ports.analytics import RecordedSession


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedList:
    """One list of a session, in a mode of filtering; `at` is in seconds since the epoch.

    `shown` and `available` count tools; `changed` says whether it took the place of another list. Tokens are estimates:
    of what was hidden, of riglm's own tools, of what those answered until the next list, and of a changed list, all of
    which the client sends anew. In shadow mode, what would have been.
    """

    session: UUID
    at: float
    mode: Mode
    surface: str
    shown: int
    available: int
    changed: bool
    tokens_all: int
    tokens_hidden: int
    tokens_own: int
    tokens_answered: int
    tokens_resent: int

    @property
    def tokens_net(self) -> int:
        """What the list saves, less what it costs; sent once."""
        return self.tokens_hidden - self.tokens_own - self.tokens_answered - self.tokens_resent


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedUse:
    """One call, and the list that its session had then: whether the tool was in it, as counted in `RecordedList`.

    `found` says how the client came to know the tool; in shadow mode it saw all of them. `saved` are the tokens by
    which each request to the model was shorter at that moment, riglm's own tools and their answers taken off.
    """

    session: UUID
    at: float
    mode: Mode
    tool: str
    server: str
    fresh: bool
    in_list: bool
    found: Found
    shown: int
    available: int
    saved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The lists of the sessions that are looked at, in the order of sessions and time, and the calls made with them."""

    lists: tuple[RecordedList, ...]
    uses: tuple[RecordedUse, ...]

    def of(self, mode: Mode) -> "Record":
        """What was recorded in one mode."""
        return Record(
            lists=tuple(each for each in self.lists if each.mode == mode),
            uses=tuple(each for each in self.uses if each.mode == mode),
        )


def read_record(
    sessions: Iterable[RecordedSession],
    exposures_of: Callable[[UUID], Sequence[Exposure]],
    own_tokens: int,
    on_session: Callable[[int], None] = lambda _: None,
) -> Record:
    """Read the lists of sessions and lay their calls beside them.

    A call goes with the last list before it; calls before any list, and of tools that no list had, are left out.
    `own_tokens` are what riglm's own tools take where they are offered, which shadow mode does not offer.
    """
    lists: list[RecordedList] = []
    uses: list[RecordedUse] = []
    for session in sessions:
        exposures = exposures_of(session.id)
        shown = [each for each in exposures if each.is_list]
        answered = _answered([each for each in exposures if not each.is_list])
        found = _lists(shown, answered, own_tokens)
        lists += found
        uses += _uses(session, shown, answered, found)
        on_session(1)
    return Record(lists=tuple(lists), uses=tuple(uses))


def _lists(shown_lists: Sequence[Exposure], answered: Callable[[float], int], own_tokens: int) -> list[RecordedList]:
    found = []
    for place, each in enumerate(shown_lists):
        until = shown_lists[place + 1].timestamp if place + 1 < len(shown_lists) else math.inf
        own = each.tokens_own + each.tokens_lacking(own_tokens)
        shown = each.tokens_shown - each.tokens_own
        changed = place > 0 and shown_lists[place - 1].shown != each.shown
        one = RecordedList(
            session=each.session_id,
            at=each.timestamp,
            mode=each.mode,
            surface=each.surface,
            shown=len(each.shown),
            available=len(each.shown) + len(each.hidden),
            changed=changed,
            tokens_all=shown + each.tokens_hidden,
            tokens_hidden=each.tokens_hidden,
            tokens_own=own,
            tokens_answered=answered(until) - answered(each.timestamp),
            tokens_resent=shown + own if changed else 0,
        )
        found.append(one)
    return found


def _answered(answers: Sequence[Exposure]) -> Callable[[float], int]:
    """Tells the tokens of the answers before a time."""
    times = [each.timestamp for each in answers]
    tokens = list(accumulate((each.tokens_shown for each in answers), initial=0))
    return lambda time: tokens[bisect_left(times, time)]


def _uses(
    session: RecordedSession,
    exposures: Sequence[Exposure],
    answered: Callable[[float], int],
    lists: Sequence[RecordedList],
) -> Iterable[RecordedUse]:
    used: set[str] = set()
    place = -1
    for call in session.calls:
        while place + 1 < len(exposures) and exposures[place + 1].timestamp <= call.timestamp:
            place += 1
        fresh = call.tool not in used
        used.add(call.tool)
        if place < 0:
            continue
        exposure, its = exposures[place], lists[place]
        in_list = call.tool in exposure.shown
        if not in_list and call.tool not in exposure.hidden:
            continue
        yield RecordedUse(
            session=session.id,
            at=call.timestamp,
            mode=its.mode,
            tool=call.tool,
            server=call.upstream,
            fresh=fresh,
            in_list=in_list,
            found=call.found,
            shown=its.shown,
            available=its.available,
            saved=its.tokens_hidden - its.tokens_own - answered(call.timestamp) + answered(lists[0].at),
        )
