"""What each strategy would have shown in the sessions that riglm recorded."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import numpy as np

from riglm.application.evaluation.session_replay import ReplayedClient, ReplayedSession, SessionReplay, usual_schema
from riglm.application.prediction.prediction_settings import Strategy
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.list_plan import Prices
from riglm.domain.naming import server_in
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session_cost import Cost
from riglm.domain.tool import Tool, ToolCatalog
from riglm.ports.analytics import TrainingSession

_MAX_CATALOGS: Final = 64
CUTS: Final = (1, 5, 10, 15)


@dataclass(slots=True, kw_only=True, eq=False)
class RankTally:
    """Predicted calls: the rank of each called tool from 0, whether its session was new to it, and the time taken."""

    ranks: list[int] = field(default_factory=list)
    fresh: list[bool] = field(default_factory=list)
    taken_ms: list[float] = field(default_factory=list)

    def figures(self, cuts: Sequence[int] = CUTS) -> dict[str, Any]:
        """`h@k` of all calls and `new@k` of fresh ones, in percent, their numbers, and milliseconds per prediction."""
        fresh_ranks = [rank for rank, fresh in zip(self.ranks, self.fresh, strict=True) if fresh]
        return {
            **hits("h", self.ranks, cuts),
            **hits("new", fresh_ranks, cuts),
            "calls": len(self.ranks),
            "new_calls": len(fresh_ranks),
            "p50_ms": percentile(self.taken_ms, 0.5),
            "p99_ms": percentile(self.taken_ms, 0.99),
        }


def hits(name: str, ranks: Sequence[int], cuts: Sequence[int]) -> dict[str, float | None]:
    """The share of ranks among the first k, in percent, for each k; None without ranks."""
    found = np.array(ranks)
    return {f"{name}@{cut}": round(100 * float((found < cut).mean()), 2) if ranks else None for cut in cuts}


def percentile(values: Sequence[float], share: float) -> float | None:
    """A percentile, to a thousandth; None of nothing."""
    return round(float(np.quantile(values, share)), 3) if values else None


def rank(scores: "np.typing.NDArray[np.float64]", target: int) -> int:
    """How many candidates come before one; of equals, the first in the catalogue."""
    return int((scores > scores[target]).sum() + (scores[:target] == scores[target]).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCall:
    """One recorded call, and the list that the session had.

    `size` is the number of tools in the list, out of `candidates`. `is_hit` is True if the list had the tool, or riglm
    had sent its definition without being asked for it; `fresh` is True if the session had not used the tool before.
    `at` is in seconds since the epoch.
    """

    session: UUID
    at: float
    tool: str
    server: str
    fresh: bool
    is_hit: bool
    size: int
    candidates: int


@dataclass(slots=True, kw_only=True)
class ReplayedHistory:
    """The calls of the sessions that count, and what the sessions cost."""

    calls: list[ReplayedCall] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the figures of the calls, and the price relative to no proxy and to a host's search."""
        cost = sum(self.costs, Cost())
        price, search = cost.price, cost.price_of_search
        return {
            **figures(self.calls),
            "price": None if price is None else round(price, 3),
            "price_of_search": None if search is None else round(search, 3),
            "requests": round(cost.riglm_requests / cost.sessions, 1) if cost.sessions else None,
        }


def walk_history(
    history: Sequence[TrainingSession],
    strategy: Strategy,
    rules: FilteringSettings,
    prices: Prices,
    definitions: Mapping[str, bytes],
    *,
    by_principal: bool = False,
    since: float = 0.0,
    on_session: Callable[[int], None] = lambda _: None,
) -> ReplayedHistory:
    """Walk the sessions once, oldest first; each gets its list before it is learned.

    With `by_principal` a principal learns only from its sessions.

    `definitions` has raw definitions by tool; a tool without one counts as a usual one. Sessions that started before
    `since`, or whose catalog is unknown, are only learned from. Contexts are not recorded as text, so they play no
    part. Failed calls are not learned.
    """
    servers, replays = _servers(history), dict[str, SessionReplay]()

    def replay_of(session: TrainingSession) -> SessionReplay:
        whose = session.principal if by_principal else ""
        if whose not in replays:
            replays[whose] = SessionReplay(rules, prices, strategy, servers)
        return replays[whose]

    with ThreadPoolExecutor(1) as thread:  # whose caller may have an event loop
        return thread.submit(asyncio.run, _walk(history, replay_of, definitions, since, on_session)).result()


async def _walk(
    history: Sequence[TrainingSession],
    replay_of: Callable[[TrainingSession], SessionReplay],
    definitions: Mapping[str, bytes],
    since: float,
    on_session: Callable[[int], None],
) -> ReplayedHistory:
    found, catalogs = ReplayedHistory(), lru_cache(_MAX_CATALOGS)(lambda names: _catalog(names, definitions))
    for session in history:
        calls = session.calls
        names = tuple(dict.fromkeys((*session.tools_available, *(call.tool for call in calls))))
        priced = await replay_of(session).price(
            ReplayedSession(
                calls=tuple(call.tool for call in calls),
                failures=frozenset(place for place, call in enumerate(calls) if not call.success),
                catalog=catalogs(names),
                started_at=session.started_at,
                client=ReplayedClient(name=session.client),
                principal=session.principal,
                profile=session.profile,
                project=session.project,
            )
        )
        if session.started_at >= since and session.tools_available and calls:
            found.costs.append(priced.cost)
            used: set[str] = set()
            for call, is_hit in zip(calls, priced.hits, strict=True):
                found.calls.append(
                    ReplayedCall(
                        session=session.id,
                        at=call.timestamp,
                        tool=call.tool,
                        server=call.upstream,
                        fresh=call.tool not in used,
                        is_hit=is_hit,
                        size=priced.first_list,
                        candidates=len(names),
                    )
                )
                used.add(call.tool)
        on_session(1)
    return found


def _servers(history: Sequence[TrainingSession]) -> Mapping[str, str]:
    named = {tool: server_in(tool) for session in history for tool in session.tools_available}
    return named | {call.tool: call.upstream for session in history for call in session.calls}


def _catalog(names: tuple[str, ...], definitions: Mapping[str, bytes]) -> ToolCatalog:
    def definition(name: str) -> bytes:
        known = definitions.get(name)
        if known is not None:
            return bytes(jsonrpc.with_member(Raw(known), ("name",), jsonrpc.encode(name)))
        return jsonrpc.encode({"name": name, "description": "", "inputSchema": usual_schema(name)})

    return ToolCatalog(tuple(Tool(name, Raw(definition(name))) for name in names))


def figures(calls: Sequence[ReplayedCall]) -> dict[str, Any]:
    """The figures of replayed calls; shares are in percent, and None where there is nothing to share.

    `calls` and `new_calls` (of tools that the session had not used) are counted, `hit_rate` and `new_hit_rate` are the
    shares of them whose tool was in the list, `reduction` how many of all tools it did not show; `mean_list` is its
    mean length.
    """
    fresh = [call for call in calls if call.fresh]
    shown, available = sum(call.size for call in calls), sum(call.candidates for call in calls)
    return {
        "sessions": len({call.session for call in calls}),
        "calls": len(calls),
        "new_calls": len(fresh),
        "hit_rate": _percent(sum(call.is_hit for call in calls), len(calls)),
        "new_hit_rate": _percent(sum(call.is_hit for call in fresh), len(fresh)),
        "mean_list": round(shown / len(calls), 2) if calls else None,
        "reduction": _percent(available - shown, available),
    }


def _percent(part: float, whole: float) -> float | None:
    return round(100 * part / whole, 2) if whole else None
