"""Sessions that are replayed through the lists and the search of the proxy, with a strategy that learns meanwhile.

The search is taken to find the tool that the session calls next, and so is the search of a host that defers tools.
Contexts are not set.
"""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from typing import Any, Final

from riglm.application.filtering.filtering_service import FilteringService
from riglm.application.filtering.meta_tools import MetaTools
from riglm.application.prediction.calibration import CalibratedPredictor, LearnedSessions
from riglm.application.prediction.prediction_settings import Strategy
from riglm.application.reports.figures import JudgedCall
from riglm.application.tool_lists.list_writer import SEARCH
from riglm.application.tool_lists.selection import ListSelection, NullPrediction, UsageSource
from riglm.domain import jsonrpc
from riglm.domain.exposure import Exposure, Surface
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.jsonrpc import Raw
from riglm.domain.learning import MAX_USAGE_SESSIONS, SIGNALS, SessionUse, WarmSet, WarmSetKey
from riglm.domain.list_plan import HOST_LIST_TOKENS, Prices
from riglm.domain.naming import server_in
from riglm.domain.prediction import Prediction, PredictionInput, ToolMatch, ToolSearchResult
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import PROFILE, ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.session_cost import DEFAULT_SIZES, Cost, SessionCost, SessionSizes
from riglm.domain.session_state import SessionState
from riglm.domain.tool import Tool, ToolCatalog
from riglm.ports.analytics import TrainingSession


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedSession:
    """What a replayed session cost, the number of tools in its first list, and whether each call's tool was listed."""

    cost: Cost
    first_list: int
    is_short: bool
    hits: tuple[bool, ...]


class SessionReplay:
    """Sessions that call their tools one after the other, through the filter of the proxy."""

    def __init__(
        self,
        rules: FilteringSettings,
        prices: Prices,
        strategy: Strategy,
        servers: Mapping[str, str],
        sizes: SessionSizes = DEFAULT_SIZES,
    ) -> None:
        """`servers` has the server of each tool."""
        self._prices = prices
        self._sizes = sizes
        self._now = 0.0
        self._usage = _UsageSoFar(strategy, lambda name: servers.get(name, ""), rules.period, lambda: self._now)
        self._filtering = FilteringService(
            rules.model_copy(update={"enabled": True, "mode": "enforce"}),
            _ReplayedPrediction(strategy, servers, lambda: self._now),
            usage=self._usage,
            prices=prices,
            predictor=strategy.name,
            owner=lambda name: (servers.get(name, ""), name),
            clock=lambda: self._now,
        )
        self._meta_tools = MetaTools(self._filtering)

    async def price(
        self,
        session: Session,
        catalog: ToolCatalog,
        calls: Sequence[str],
        failures: Collection[int] = (),
        *,
        has_search: bool = False,
    ) -> PricedSession:
        """Price one session that calls these tools, and learn from it.

        `failures` are the places of failed calls, which are not learned. `has_search` is True if the client has a tool
        search, whose definition is then in every list.
        """
        self._now = session.started_at
        filtering, price = self._filtering, SessionCost(self._prices, self._sizes)
        await filtering.prepare(session, catalog)
        selection = filtering.compose(session, catalog)
        first = self._loaded(session, selection, HOST_LIST_TOKENS if has_search else 0)
        price.shown(first)
        state, is_deferred = filtering.state(session), selection.surface == Surface.HINTS
        hits: list[bool] = []
        for place, tool in enumerate(calls):
            loaded = frozenset(first.shown) if is_deferred else filtering.listed(session)
            if tool not in loaded and tool not in state.sent:
                if is_deferred:
                    price.searched_by_host()
                    state.sent.add(tool)
                else:
                    answer = await self._meta_tools.run(session, SEARCH, jsonrpc.encode({"query": tool}))
                    if answer.selection is not None:
                        price.shown(answer.selection.to_exposure(session.id, self._now))
            is_listed = tool in loaded or tool in state.suggested
            hits.append(is_listed)
            price.called(tool)
            found = DiscoveryMethod.LISTED if is_listed else DiscoveryMethod.SEARCHED
            filtering.called(session, tool, found, success=place not in failures)
        filtering.forget(session)
        successes = [tool for place, tool in enumerate(calls) if place not in failures]
        if successes:
            self._usage.uses.append(
                SessionUse(
                    started_at=self._now,
                    tools=tuple(dict.fromkeys(successes)),
                    calls=len(successes),
                    client=session.client.name,
                    principal=session.principal,
                    profile=session.profile,
                    project=session.project,
                )
            )
        return PricedSession(
            cost=price.finish() or Cost(), first_list=len(first.shown), is_short=bool(first.hidden), hits=tuple(hits)
        )

    def _loaded(self, session: Session, selection: ListSelection, search: int) -> Exposure:
        """Return what the client sends to its model: of a list with preload hints, only the tools that have one.

        `search` are the tokens of the client's tool search.
        """
        exposure = selection.to_exposure(session.id, self._now)
        if selection.surface == Surface.HINTS:
            exposure = replace(exposure, surface=Surface.STABLE)
        return replace(exposure, tokens_shown=exposure.tokens_shown + search, tokens_own=exposure.tokens_own + search)


@dataclass
class _UsageSoFar(UsageSource):
    """Estimates from the sessions so far, recomputed by the rule of warm sets."""

    strategy: Strategy
    server_of: Callable[[str], str]
    period: float
    clock: Callable[[], float]
    uses: list[SessionUse] = field(default_factory=list)
    warm_sets: dict[WarmSetKey, WarmSet] = field(default_factory=dict)

    async def refresh(self, session: Session, candidates: Sequence[str]) -> None:
        now, uses = self.clock(), self.uses[: -MAX_USAGE_SESSIONS - 1 : -1]
        key = _warm_set_key(session)
        found = self.warm_sets.get(key)
        if uses and (found is None or found.is_due(len(uses), candidates, now, self.period)):
            learned = LearnedSessions(self.strategy, uses, candidates, self.server_of)
            self.warm_sets[key] = learned.warm_set(key, now)

    def warm_set(self, session: Session) -> WarmSet | None:
        return self.warm_sets.get(_warm_set_key(session))


class _ReplayedPrediction(NullPrediction):
    """A strategy that learns call by call, and a search whose query is the name of the tool that it finds."""

    def __init__(self, strategy: Strategy, servers: Mapping[str, str], clock: Callable[[], float]) -> None:
        self._predictor = CalibratedPredictor(strategy.make())
        self._servers = servers
        self._clock = clock

    def predict(
        self, session: Session, state: SessionState, names: tuple[str, ...], *, explain: bool = False
    ) -> Prediction | None:
        return self._predictor.predict(self._known(session, state, names), explain=explain)

    def called(self, session: Session, state: SessionState, tool: str, found: DiscoveryMethod) -> None:
        names = () if state.view is None else state.view.candidates
        self._predictor.learn(self._known(session, state, names), tool, SIGNALS[found])

    def _known(self, session: Session, state: SessionState, names: tuple[str, ...]) -> PredictionInput:
        return PredictionInput(
            candidates=names,
            calls=tuple(state.calls),
            servers=self._servers,
            principal=session.principal,
            client=session.client.name,
            profile=session.profile,
            project=session.project,
            time=self._clock(),
        )

    async def search(
        self, session: Session, query: str, limit: int, allowed: Callable[[str], bool]
    ) -> ToolSearchResult:
        hit = ToolMatch(name=query, score=1.0, probability=1.0, why="by its name")
        return ToolSearchResult(hits=(hit,), near=(), abstained=False)


def _warm_set_key(session: Session) -> WarmSetKey:
    return WarmSetKey(
        principal=session.principal, client=session.client.name, profile=session.profile, project=session.project
    )


def usual_schema(name: str) -> dict[str, Any]:
    """Return a schema of a usual size for a tool whose schema is not known."""
    described = {"type": "string", "description": "what the tool needs to know of this"}
    return {"type": "object", "properties": {f"parameter_{place}": described for place in range(2 + digest(name) % 6)}}


def digest(text: str) -> int:
    """Return a number that orders and splits samples, the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:6], "big")


_MAX_CATALOGS: Final = 64


@dataclass(slots=True, kw_only=True)
class ReplayedHistory:
    """The calls of the sessions that count, and what the sessions cost."""

    calls: list[JudgedCall] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the figures of the calls, and the price relative to no proxy and to a host's search."""
        cost = sum(self.costs, Cost())
        requests = round(cost.riglm_requests / cost.sessions, 1) if cost.sessions else None
        return {**figures(self.calls), **cost.rounded_prices(), "requests": requests}


def replay_history(
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
    """Replay the sessions once, oldest first; each gets its list before it is learned.

    With `by_principal` a principal learns only from its sessions.

    `definitions` has raw definitions by tool; a tool without one counts as a usual one. Sessions that started before
    `since`, or whose catalog is unknown, are only learned from. Contexts are not recorded as text, so they play no
    part. Failed calls are not learned.
    """
    named = {tool: server_in(tool) for session in history for tool in session.tools_available}
    servers = named | {call.tool: call.upstream for session in history for call in session.calls}
    replay_for = cache(lambda _: SessionReplay(rules, prices, strategy, servers))
    create_catalog = lru_cache(_MAX_CATALOGS)(lambda names: _create_catalog(names, definitions))

    async def replay_all() -> ReplayedHistory:
        found = ReplayedHistory()
        for session in history:
            calls = session.calls
            names = tuple(dict.fromkeys((*session.tools_available, *(call.tool for call in calls))))
            replayed = Session(
                started_at=session.started_at,
                era=ProtocolEra.HANDSHAKE,
                transport=Transport.STDIO,
                method=IdentificationMethod.PROCESS,
                client=ClientInfo(name=session.client),
                metadata={PROFILE: session.profile},
                principal=session.principal,
                project=session.project,
            )
            failures = {place for place, call in enumerate(calls) if not call.success}
            replay = replay_for(session.principal if by_principal else "")
            priced = await replay.price(replayed, create_catalog(names), [call.tool for call in calls], failures)
            if session.started_at >= since and session.tools_available and calls:
                found.costs.append(priced.cost)
                found.calls += _judge_calls(session, priced, len(names))
            on_session(1)
        return found

    with ThreadPoolExecutor(1) as thread:  # whose caller may have an event loop
        return thread.submit(asyncio.run, replay_all()).result()


def _judge_calls(session: TrainingSession, priced: PricedSession, available: int) -> Iterator[JudgedCall]:
    used: set[str] = set()
    for call, is_hit in zip(session.calls, priced.hits, strict=True):
        yield JudgedCall(
            session=session.id,
            at=call.timestamp,
            tool=call.tool,
            server=call.upstream,
            fresh=call.tool not in used,
            is_hit=is_hit,
            shown=priced.first_list,
            available=available,
        )
        used.add(call.tool)


def _create_catalog(names: tuple[str, ...], definitions: Mapping[str, bytes]) -> ToolCatalog:
    def definition(name: str) -> bytes:
        if name in definitions:
            return bytes(jsonrpc.with_member(Raw(definitions[name]), ("name",), jsonrpc.encode(name)))
        return jsonrpc.encode({"name": name, "description": "", "inputSchema": usual_schema(name)})

    return ToolCatalog(tuple(Tool(name, Raw(definition(name))) for name in names))


def figures(calls: Sequence[JudgedCall]) -> dict[str, Any]:
    """The figures of replayed calls; shares are in percent, and None where there is nothing to share.

    `calls` and `new_calls` (of tools that the session had not used) are counted, `hit_rate` and `new_hit_rate` are the
    shares of them whose tool was in the list, `reduction` how many of all tools it did not show; `mean_list` is its
    mean length.
    """
    fresh = [call for call in calls if call.fresh]
    shown, available = sum(call.shown for call in calls), sum(call.available for call in calls)
    return {
        "sessions": len({call.session for call in calls}),
        "calls": len(calls),
        "new_calls": len(fresh),
        "hit_rate": percent_hit(calls),
        "new_hit_rate": percent_hit(fresh),
        "mean_list": round(shown / len(calls), 2) if calls else None,
        "reduction": round(100 * (available - shown) / available, 2) if available else None,
    }


def percent_hit(calls: Sequence[JudgedCall]) -> float | None:
    """Return the share of calls whose tool was in the list, in percent; None without calls."""
    return round(100 * sum(call.is_hit for call in calls) / len(calls), 2) if calls else None
