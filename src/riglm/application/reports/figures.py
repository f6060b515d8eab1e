"""The figures of recorded sessions: of lists that were shown or that shadow mode would have shown, tools and prices.

The report, `riglm stats`, the dashboard and the control API take them from `read_figures`.
"""

import math
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from riglm.domain import session_cost
from riglm.domain.exposure import SEARCH_SURFACE, Exposure, Mode, Surface, TokenTally
from riglm.domain.invocation import OWN_UPSTREAM, DiscoveryMethod
from riglm.domain.list_plan import HOST_LIST_TOKENS, Prices
from riglm.domain.schemas.control_api import ToolEntry
from riglm.ports.analytics import SessionHistoryPort, TrainingCall, TrainingSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ListObservation:
    """One list of a session, in a mode of filtering; `at` is in seconds since the epoch.

    `shown` and `available` count tools; `changed` is True if it replaced another list. `tokens` are those of the list
    and of the results of meta-tools until the next list, `searches` the searches among these. In shadow mode, what
    would have been.
    """

    session: UUID
    at: float
    mode: Mode
    surface: str
    shown: int
    available: int
    changed: bool
    searches: int
    tokens: TokenTally


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedCall:
    """One call, and the list that its session had then; `at` is in seconds since the epoch.

    `is_hit` is True if the tool was in the list, or if riglm suggested it in a result; `fresh` is True if the session
    had not used the tool before. The list had `shown` of the `available` tools.
    """

    session: UUID
    at: float
    tool: str
    server: str
    fresh: bool
    is_hit: bool
    shown: int
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallObservation(JudgedCall):
    """A recorded call, and the list that its session had then, as counted in `ListObservation`.

    `hides` is True if that list hid any tool; only then the call counts for the hit rate. With preload hints the tools
    without one count as hidden. `found` is how the client discovered the tool; in shadow mode and with preload hints it
    had all of them.
    """

    mode: Mode
    found: DiscoveryMethod
    hides: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCostObservation:
    """What one session's model requests cost, and would cost with `CODING_AGENT`; `mode` is that of its first list."""

    session: UUID
    mode: Mode
    cost: session_cost.Cost
    as_coding_agent: session_cost.Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFigures:
    """The numbers of sessions, of calls of upstream tools (`calls`), and of calls of meta-tools (`meta_tool_calls`).

    `used_sessions` used a tool, `unlisted_sessions` without a complete list. `known` are the tools that lists had or
    that ran, `used` those that ran.
    """

    sessions: int = 0
    calls: int = 0
    failures: int = 0
    found_by_search: int = 0
    meta_tool_calls: int = 0
    used_sessions: int = 0
    unlisted_sessions: int = 0
    known: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """The lists of sessions in the order of sessions and time, the calls made with them, and what sessions cost.

    `bills` are of clients whose transcripts contain token usage. They, `sessions` and `usage` are of all sessions, also
    after `of`.
    """

    sessions: tuple[TrainingSession, ...] = ()
    usage: UsageFigures = UsageFigures()
    lists: tuple[ListObservation, ...] = ()
    uses: tuple[CallObservation, ...] = ()
    costs: tuple[SessionCostObservation, ...] = ()
    bills: tuple[session_cost.ClientBill, ...] = ()

    @property
    def calls(self) -> Iterator[tuple[UUID, TrainingCall]]:
        """Yield the calls of upstream tools, each with its session."""
        return ((each.id, call) for each in self.sessions for call in each.calls if call.upstream != OWN_UPSTREAM)

    @property
    def judged(self) -> tuple[CallObservation, ...]:
        """Return the calls made with a list that hid something."""
        return tuple(each for each in self.uses if each.hides)

    @property
    def cost(self) -> session_cost.Cost:
        """Return the sum of what the sessions cost."""
        return sum((each.cost for each in self.costs), session_cost.Cost())

    @property
    def cost_as_coding_agent(self) -> session_cost.Cost:
        """Return the sum of what the sessions would cost with the prompts and results of a coding agent."""
        return sum((each.as_coding_agent for each in self.costs), session_cost.Cost())

    def of(self, mode: Mode) -> "Observations":
        """What was recorded in one mode."""
        return replace(
            self,
            lists=tuple(each for each in self.lists if each.mode == mode),
            uses=tuple(each for each in self.uses if each.mode == mode),
            costs=tuple(each for each in self.costs if each.mode == mode),
        )

    @property
    def mode(self) -> Mode:
        """Return the mode of the latest list that was selected, `off` without any: the mode that figures are of."""
        selected = (each for each in self.lists if each.mode != "off")
        latest = max(selected, key=lambda each: each.at, default=None)
        return "off" if latest is None else latest.mode

    @property
    def now(self) -> "Observations":
        """What was recorded in the mode that figures are of."""
        return self.of(self.mode)


def read_figures(
    store: SessionHistoryPort,
    prices: Prices,
    *,
    limit: int = session_cost.MAX_SESSIONS,
    since: float = 0.0,
    profile: str | None = None,
    on_session: Callable[[int], None] = lambda _: None,
) -> Observations:
    """Read the figures of the latest `limit` sessions that riglm proxied and that started since a time.

    Without sessions before the latest ones with `MAX_CALLS` calls. Sessions of clients with token usage are priced by
    it, those of others by the default sizes. A call goes with the last list before it; calls before any list, and of
    tools that no list had, are left out.
    """
    sessions = store.list_proxied_sessions(limit, since, profile, session_cost.MAX_CALLS)
    by_session = defaultdict[UUID, list[Exposure]](list)
    for exposure in store.list_exposures(*(each.id for each in sessions)):
        by_session[exposure.session_id].append(exposure)
    bills = _collect_bills(store.list_token_usage(), sessions, by_session)
    sizes = {bill.client: bill.sizes for bill in bills}
    lists: list[ListObservation] = []
    uses: list[CallObservation] = []
    costs: list[SessionCostObservation] = []
    for session in sessions:
        shown = by_session[session.id]
        ran = [call for call in session.calls if _is_use(call)]
        lists += _observe_lists(shown)
        uses += _observe_calls(session, ran, [each for each in shown if each.is_list])
        costs += _price_session(session, ran, shown, prices, sizes.get(session.client, session_cost.DEFAULT_SIZES))
        on_session(1)
    return Observations(
        sessions=tuple(sessions),
        usage=_count_usage(sessions, by_session),
        lists=tuple(lists),
        uses=tuple(uses),
        costs=tuple(costs),
        bills=tuple(bills),
    )


def list_figures(lists: Sequence[ListObservation]) -> dict[str, int]:
    """Return the number of sessions, lists, lists that replaced a list, and searches, and the tokens of lists."""
    return {
        "sessions": len({each.session for each in lists}),
        "lists": len(lists),
        "changes": sum(each.changed for each in lists),
        "searches": sum(each.searches for each in lists),
        **{f"tokens_{name}": sum(getattr(each.tokens, name) for each in lists) for name in _TOKENS},
    }


def hit_figures(uses: Sequence[CallObservation]) -> dict[str, int]:
    """Return the numbers of hits, of misses, and of the misses whose tool a search of riglm had found."""
    missed = [use for use in uses if not use.is_hit]
    found_by_search = sum(use.found is DiscoveryMethod.SEARCHED for use in missed)
    return {"hits": len(uses) - len(missed), "missed": len(missed), "found_by_search": found_by_search}


_TOKENS: Final = ("shown", "hidden", "meta_tools", "resent", "net")


def _collect_bills(
    usages: Sequence[session_cost.TokenUsage],
    sessions: Sequence[TrainingSession],
    exposures: Mapping[UUID, Sequence[Exposure]],
) -> list[session_cost.ClientBill]:
    """Return the bill of each client, by name."""
    lists: dict[str, list[Exposure]] = {}
    for session in sessions:
        lists.setdefault(session.client, []).extend(each for each in exposures.get(session.id, ()) if each.is_list)
    for theirs in lists.values():
        theirs.sort(key=lambda each: each.timestamp)
    billed: dict[str, list[tuple[session_cost.TokenUsage, float]]] = {}
    for usage in usages:
        tokens = _get_list_tokens(lists.get(usage.client, ()), usage.started_at)
        billed.setdefault(usage.client, []).append((usage, tokens))
    return [session_cost.ClientBill(client=client, sessions=tuple(each)) for client, each in sorted(billed.items())]


def _get_list_tokens(lists: Sequence[Exposure], at: float) -> float:
    """Return the tokens of the list that a client sent at a time; before the first list, those of the whole catalog.

    Without a list they are 0: they count as part of the prompt then.
    """
    if not lists:
        return 0.0
    place = bisect_right(lists, at, key=lambda each: each.timestamp)
    latest = lists[max(0, place - 1)]
    if latest.surface == Surface.HINTS:
        return HOST_LIST_TOKENS
    return latest.tokens_shown if place and latest.mode == "enforce" else latest.tokens_all


def _count_usage(sessions: Sequence[TrainingSession], shown: Mapping[UUID, Sequence[Exposure]]) -> UsageFigures:
    calls = [call for session in sessions for call in session.calls]
    of_servers = [call for call in calls if call.upstream != OWN_UPSTREAM]
    used = [session for session in sessions if any(map(_is_use, session.calls))]
    found = {call.tool for call in of_servers if call.ran or call.found is not DiscoveryMethod.NAMED}
    for names in {each.available for some in shown.values() for each in some if each.is_list}:
        found.update(names)
    return UsageFigures(
        sessions=len(sessions),
        calls=len(of_servers),
        failures=sum(not call.success for call in of_servers),
        found_by_search=sum(call.found is DiscoveryMethod.SEARCHED for call in of_servers),
        meta_tool_calls=len(calls) - len(of_servers),
        used_sessions=len(used),
        unlisted_sessions=sum(not session.tools_available for session in used),
        known=frozenset(found),
        used=frozenset(call.tool for call in of_servers if call.ran),
    )


def _is_use(call: TrainingCall) -> bool:
    return call.ran and call.upstream != OWN_UPSTREAM


def cost_fields(cost: session_cost.Cost) -> dict[str, Any]:
    """Return the sessions of a cost and its price relative to no proxy and to a host's search.

    Prices are None with fewer than `MIN_PRICED_SESSIONS`.
    """
    priced = cost if cost.sessions >= session_cost.MIN_PRICED_SESSIONS else session_cost.Cost()
    return {"sessions": cost.sessions, **priced.rounded_prices()}


def _observe_lists(exposures: Sequence[Exposure]) -> Iterable[ListObservation]:
    shown = [each for each in exposures if each.is_list]
    for place, each in enumerate(shown):
        until = shown[place + 1].timestamp if place + 1 < len(shown) else math.inf
        answers = [other for other in exposures if not other.is_list and each.timestamp <= other.timestamp < until]
        changed = place > 0 and shown[place - 1].shown != each.shown
        tokens = TokenTally()
        tokens.add(each, changed=changed)
        for answer in answers:
            tokens.add(answer)
        yield ListObservation(
            session=each.session_id,
            at=each.timestamp,
            mode=each.mode,
            surface=each.surface,
            shown=len(each.shown),
            available=len(each.shown) + len(each.hidden),
            changed=changed,
            searches=sum(other.surface == SEARCH_SURFACE for other in answers),
            tokens=tokens,
        )


def _observe_calls(
    session: TrainingSession, calls: Sequence[TrainingCall], lists: Sequence[Exposure]
) -> Iterable[CallObservation]:
    used: set[str] = set()
    place = -1
    for call in calls:
        while place + 1 < len(lists) and lists[place + 1].timestamp <= call.timestamp:
            place += 1
        fresh = call.tool not in used
        used.add(call.tool)
        if place < 0:
            continue
        shown = lists[place]
        is_hit = shown.is_hit(call.tool, call.found)
        if is_hit is None:
            continue
        yield CallObservation(
            session=session.id,
            at=call.timestamp,
            mode=shown.mode,
            tool=call.tool,
            server=call.upstream,
            fresh=fresh,
            is_hit=is_hit,
            found=call.found,
            hides=shown.hides,
            shown=len(shown.shown),
            available=len(shown.shown) + len(shown.hidden),
        )


def _price_session(
    session: TrainingSession,
    calls: Sequence[TrainingCall],
    exposures: Sequence[Exposure],
    prices: Prices,
    sizes: session_cost.SessionSizes,
) -> Iterable[SessionCostObservation]:
    price, agent = session_cost.SessionCost(prices, sizes), session_cost.SessionCost(prices, session_cost.CODING_AGENT)
    for each in (price, agent):
        shown = deque(exposures)
        for call in calls:
            while shown and shown[0].timestamp <= call.timestamp:
                each.shown(shown.popleft())
            each.called(call.tool)
        for rest in shown:
            each.shown(rest)
    cost, as_coding_agent = price.finish(), agent.finish()
    if cost is not None and as_coding_agent is not None:
        yield SessionCostObservation(session=session.id, mode=price.mode, cost=cost, as_coding_agent=as_coding_agent)


def tool_statistics(figures: Observations, further: Collection[str] = ()) -> Sequence[ToolEntry]:
    """Return how each tool of each upstream server was used, most used first, then by name.

    They are the tools that are known by the figures, and `further` ones. A call that riglm refused counts for no tool.
    """
    calls: dict[tuple[str, str], list[_SessionCall]] = defaultdict(list)
    names = {*figures.usage.known, *further}
    for session, call in figures.calls:
        if call.tool in names and (call.upstream or call.ran):
            calls[call.tool, call.upstream].append((session, call))
    found = [_statistics(*key, of_tool) for key, of_tool in calls.items()]
    found += [_statistics(tool, "", ()) for tool in names.difference(tool for tool, _ in calls)]
    return sorted(found, key=lambda each: (-each.invocations, each.tool, each.upstream))


def tool_totals(figures: Observations, tool: str) -> ToolEntry:
    """Return how a tool was used on all upstream servers; `upstream` is the one that ran it most often."""
    calls = [each for each in figures.calls if each[1].tool == tool and (each[1].upstream or each[1].ran)]
    upstreams = Counter(call.upstream for _, call in calls)
    return _statistics(tool, min(upstreams, key=lambda each: (-upstreams[each], each), default=""), calls)


_SessionCall = tuple[UUID, TrainingCall]


def _statistics(tool: str, upstream: str, of_sessions: Sequence[_SessionCall]) -> ToolEntry:
    """Return how a tool was used; percentiles are durations that occurred (nearest rank)."""
    calls = [call for _, call in of_sessions]
    durations = sorted(call.duration_ms for call in calls)
    return ToolEntry(
        tool=tool,
        upstream=upstream,
        invocations=len(calls),
        failures=sum(not call.success for call in calls),
        sessions=len({session for session, _ in of_sessions}),
        median_ms=_nearest_rank(durations, 50),
        p95_ms=_nearest_rank(durations, 95),
        last_used=max((call.timestamp for call in calls), default=None),
        uses=sum(call.ran for call in calls),
        listed=sum(call.found is DiscoveryMethod.LISTED for call in calls),
        searched=sum(call.found is DiscoveryMethod.SEARCHED for call in calls),
    )


def _nearest_rank(ascending: Sequence[float], percent: int) -> float | None:
    """Return the smallest value that at least `percent` percent of the values do not exceed; None without any."""
    return ascending[math.ceil(len(ascending) * percent / 100) - 1] if ascending else None
