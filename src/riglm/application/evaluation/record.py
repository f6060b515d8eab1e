"""What was recorded of lists that clients were shown or that shadow mode would have shown, and what they cost."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from riglm.domain.exposure import Exposure, Mode
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.list_plan import Prices
from riglm.domain.session_cost import Cost, SessionCost
from riglm.ports.analytics import TrainingSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ListObservation:
    """One list of a session, in a mode of filtering; `at` is in seconds since the epoch.

    `shown` and `available` count tools; `changed` is True if it replaced another list. Tokens are estimates:
    of what was hidden, of the meta-tools, of their results until the next list, and of a changed list, which the client
    sends again. In shadow mode, what would have been.
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
class CallObservation:
    """One call, and the list that its session had then: whether the tool was in it, as counted in `ListObservation`.

    `hides` is True if that list hid any tool; only then the call counts for the hit rate. A tool that riglm suggested
    in a result counts as listed. `found` is how the client discovered the tool; in shadow mode it had all of them.
    """

    session: UUID
    at: float
    mode: Mode
    tool: str
    server: str
    fresh: bool
    in_list: bool
    found: DiscoveryMethod
    hides: bool
    shown: int
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCostObservation:
    """What one session's model requests cost; `mode` is that of its first list."""

    session: UUID
    mode: Mode
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """The lists of sessions in the order of sessions and time, the calls made with them, and what sessions cost."""

    lists: tuple[ListObservation, ...] = ()
    uses: tuple[CallObservation, ...] = ()
    costs: tuple[SessionCostObservation, ...] = ()

    @property
    def judged(self) -> tuple[CallObservation, ...]:
        """Return the calls made with a list that hid something."""
        return tuple(each for each in self.uses if each.hides)

    @property
    def cost(self) -> Cost:
        """Return the sum of what the sessions cost."""
        return Cost.sum(each.cost for each in self.costs)

    def of(self, mode: Mode) -> "Observations":
        """What was recorded in one mode."""
        return Observations(
            lists=tuple(each for each in self.lists if each.mode == mode),
            uses=tuple(each for each in self.uses if each.mode == mode),
            costs=tuple(each for each in self.costs if each.mode == mode),
        )

    @property
    def mode(self) -> Mode:
        """Return `enforce` if any list was shown as it was selected, else `shadow`."""
        return "enforce" if any(each.mode == "enforce" for each in self.lists) else "shadow"


def read_record(
    sessions: Sequence[TrainingSession],
    exposures: Iterable[Exposure],
    prices: Prices,
    on_session: Callable[[int], None] = lambda _: None,
) -> Observations:
    """Put the calls of sessions next to their lists, and price them.

    A call goes with the last list before it; calls before any list, and of tools that no list had, are left out.
    `exposures` are those of the sessions, each session's in the order of their time.
    """
    by_session: dict[UUID, list[Exposure]] = {}
    for exposure in exposures:
        by_session.setdefault(exposure.session_id, []).append(exposure)
    lists: list[ListObservation] = []
    uses: list[CallObservation] = []
    costs: list[SessionCostObservation] = []
    for session in sessions:
        shown = by_session.get(session.id, [])
        lists += _lists(shown)
        uses += _uses(session, [each for each in shown if each.is_list])
        costs += _costs(session, shown, prices)
        on_session(1)
    return Observations(lists=tuple(lists), uses=tuple(uses), costs=tuple(costs))


def cost_fields(cost: Cost) -> dict[str, Any]:
    """Return the sessions of a cost and its price relative to no proxy and to a host's search."""
    return {
        "sessions": cost.sessions,
        "price": None if cost.price is None else round(cost.price, 3),
        "price_of_search": None if cost.price_of_search is None else round(cost.price_of_search, 3),
    }


def _lists(exposures: Sequence[Exposure]) -> Iterable[ListObservation]:
    shown = [each for each in exposures if each.is_list]
    for place, each in enumerate(shown):
        until = shown[place + 1].timestamp if place + 1 < len(shown) else math.inf
        answers = [other for other in exposures if not other.is_list and each.timestamp <= other.timestamp < until]
        changed = place > 0 and shown[place - 1].shown != each.shown
        yield ListObservation(
            session=each.session_id,
            at=each.timestamp,
            mode=each.mode,
            surface=each.surface,
            shown=len(each.shown),
            available=len(each.shown) + len(each.hidden),
            changed=changed,
            tokens_all=each.tokens_all,
            tokens_hidden=each.tokens_hidden,
            tokens_own=each.tokens_own,
            tokens_answered=sum(other.tokens_shown for other in answers),
            tokens_resent=each.tokens_shown if changed else 0,
        )


def _uses(session: TrainingSession, lists: Sequence[Exposure]) -> Iterable[CallObservation]:
    used: set[str] = set()
    place = -1
    for call in session.calls:
        while place + 1 < len(lists) and lists[place + 1].timestamp <= call.timestamp:
            place += 1
        fresh = call.tool not in used
        used.add(call.tool)
        if place < 0:
            continue
        shown = lists[place]
        in_list = call.tool in shown.shown
        if not in_list and call.tool not in shown.hidden:
            continue
        yield CallObservation(
            session=session.id,
            at=call.timestamp,
            mode=shown.mode,
            tool=call.tool,
            server=call.upstream,
            fresh=fresh,
            in_list=in_list or (shown.mode != "shadow" and call.found is DiscoveryMethod.LISTED),
            found=call.found,
            hides=bool(shown.hidden),
            shown=len(shown.shown),
            available=len(shown.shown) + len(shown.hidden),
        )


def _costs(session: TrainingSession, exposures: Sequence[Exposure], prices: Prices) -> Iterable[SessionCostObservation]:
    price = SessionCost(prices)
    shown = deque(exposures)
    for call in session.calls:
        while shown and shown[0].timestamp <= call.timestamp:
            price.shown(shown.popleft())
        price.called(call.tool)
    for rest in shown:
        price.shown(rest)
    cost = price.finish()
    if cost is not None:
        yield SessionCostObservation(session=session.id, mode=price.mode, cost=cost)
