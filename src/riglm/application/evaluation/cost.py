"""What sessions of a data set cost through riglm, without a proxy, and with the tool search of a host.

Lists and search results come from the same components as in the proxy, and are priced like recorded ones. The search is
taken to find the tool that the session calls next, and so is the search of a host that defers tools. Contexts are not
set.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from riglm.application.evaluation.dataset import CATALOGUE, DatasetError, digest, rows
from riglm.application.evaluation.record import Observations
from riglm.application.evaluation.sequences import read_sessions
from riglm.application.filtering.meta_tools import MetaTools
from riglm.application.filtering.service import FilteringService
from riglm.application.json_lines import JsonRow
from riglm.application.tool_lists.list_writer import SEARCH
from riglm.application.tool_lists.predictor_interface import NullPrediction, UsageSource
from riglm.application.tool_lists.selection import ListSelection
from riglm.domain import jsonrpc
from riglm.domain.client_support import NO_TOOL_SEARCH
from riglm.domain.exposure import Exposure, Surface
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.jsonrpc import Raw
from riglm.domain.list_plan import Prices
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.session_cost import DEFAULT_SIZES, HOST_LIST_TOKENS, Cost, SessionCost, SessionSizes
from riglm.domain.tool import Tool, ToolCatalog
from riglm.domain.usage import SessionUse, Usage, UsageModel, WarmSet

MAX_CALLS: Final = 40
"""Maximum number of calls of a session that are priced."""

_MIN_CALLS: Final = 2
_ARMS: Final = ("no_proxy", "host_search", "riglm")
_SECONDS_BETWEEN_SESSIONS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedClient:
    """The client of replayed sessions.

    `no_tool_search` is the result of the function of this name in `client_support`. `has_search` is True if the client
    has a tool search, whose definition is then in every list.
    """

    name: str = "an-agent"
    no_tool_search: str = ""
    has_search: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSet:
    """The tools of a data set with their servers, and the calls of its sessions in the order of their hashes."""

    name: str
    catalog: ToolCatalog
    servers: Mapping[str, str]
    sessions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostMetrics:
    """What sessions cost, the mean number of tools in their first lists, and the share of calls whose tool was listed.

    `listed` is None if no list hid anything.
    """

    cost: Cost
    tools: float
    first_list: float
    listed: float | None


def read_cost_set(directory: Path, *, side: str, max_tools: int | None = None) -> CostSet:
    """Read a data set; with `max_tools`, only the servers used most, while their tools are no more than that.

    Raises:
        DatasetError: a file is missing, a line is not what it must be, or no session is left.
    """
    found = read_sessions(directory, side=side, limit=10**9)
    servers = {tool.name: tool.server for tool in found.dataset.tools}
    if max_tools is not None and max_tools < len(servers):
        kept = _most_used(servers, (session.calls for session in found.sessions), max_tools)
        servers = {name: server for name, server in servers.items() if server in kept}
    calls = ([call for call in session.calls if call in servers] for session in found.sessions)
    sessions = tuple(tuple(each[:MAX_CALLS]) for each in calls if len(each) >= _MIN_CALLS)
    if not sessions:
        raise DatasetError(f"{directory}: no session has {_MIN_CALLS} calls of these tools — fix: a larger --tools")
    raw = (_definition(row) for row, _ in rows(directory / CATALOGUE, key="name") if row["name"] in servers)
    catalog = ToolCatalog(tuple(Tool(str(one["name"]), Raw(jsonrpc.encode(one))) for one in raw))
    return CostSet(name=directory.name, catalog=catalog, servers=servers, sessions=sessions)


async def evaluate_cost(
    found: CostSet,
    rules: FilteringSettings,
    prices: Prices,
    *,
    learn: int,
    judge: int,
    client: ReplayedClient | None = None,
    sizes: SessionSizes = DEFAULT_SIZES,
    on_session: Callable[[int], None] = lambda _: None,
) -> CostMetrics:
    """Learn from the first sessions and price those that follow, which are learned from as well."""
    enforced = rules.model_copy(update={"enabled": True, "mode": "enforce"})
    walk = _CostReplay(found, enforced, prices, client or ReplayedClient(), sizes)
    judged = []
    for place, calls in enumerate(found.sessions[: learn + judge]):
        priced = await walk.session(calls)
        if place >= learn:
            judged.append(priced)
        on_session(1)
    return _figures(judged, len(found.catalog.tools))


def recorded_figures(record: Observations, *, as_coding_agent: bool = False) -> CostMetrics:
    """Return the figures of recorded sessions, of one mode."""
    first = {each.session: each for each in reversed(record.lists)}
    shown = [first[each.session] for each in record.costs]
    uses = record.judged
    return CostMetrics(
        cost=record.cost_as_coding_agent if as_coding_agent else record.cost,
        tools=_mean([each.available for each in shown]),
        first_list=_mean([each.shown for each in shown]),
        listed=_mean([use.is_hit for use in uses]) if uses else None,
    )


def cost_rows(figures: CostMetrics) -> list[dict[str, Any]]:
    """Return the figures of at least one session as one row for each arm; shares are in percent."""
    cost, listed = figures.cost, figures.listed
    lists = {
        "no_proxy": (round(figures.tools, 1), 100.0),
        "host_search": (None, None),
        "riglm": (round(figures.first_list, 1), None if listed is None else round(100 * listed, 1)),
    }
    return [
        {
            "arm": arm,
            "price": round(getattr(cost, arm) / cost.no_proxy, 3),
            "requests": round(getattr(cost, f"{arm}_requests") / cost.sessions, 1),
            "first_list": lists[arm][0],
            "listed": lists[arm][1],
        }
        for arm in _ARMS
    ]


class _Priced(NamedTuple):
    cost: Cost
    first_list: int
    is_short: bool
    listed: int


class _CostReplay:
    """Sessions that call their tools one after the other, through the filter of the proxy."""

    def __init__(
        self, found: CostSet, rules: FilteringSettings, prices: Prices, client: ReplayedClient, sizes: SessionSizes
    ) -> None:
        self._found = found
        self._prices = prices
        self._sizes = sizes
        self._client = client
        self._now = 0.0
        self._usage = _UsageSoFar(rules.period, lambda: self._now)
        self._filtering = FilteringService(
            rules,
            _PerfectSearch(),
            usage=self._usage,
            prices=prices,
            owner=lambda name: (found.servers.get(name, ""), name),
            clock=lambda: self._now,
        )
        self._meta_tools = MetaTools(self._filtering)

    async def session(self, calls: Sequence[str]) -> _Priced:
        """Price one session, and learn from it."""
        self._now += _SECONDS_BETWEEN_SESSIONS
        filtering, price = self._filtering, SessionCost(self._prices, self._sizes)
        session = Session(
            started_at=self._now,
            era=ProtocolEra.HANDSHAKE,
            transport=Transport.STDIO,
            method=IdentificationMethod.PROCESS,
            client=ClientInfo(name=self._client.name),
            metadata={NO_TOOL_SEARCH: self._client.no_tool_search},
        )
        await filtering.prepare(session)
        selection = filtering.compose(session, self._found.catalog)
        first = self._loaded(session, selection)
        price.shown(first)
        state, listed, is_deferred = filtering.state(session), 0, selection.surface == Surface.HINTS
        for tool in calls:
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
            listed += is_listed
            price.called(tool)
            filtering.called(session, tool, DiscoveryMethod.LISTED if is_listed else DiscoveryMethod.SEARCHED)
        filtering.forget(session)
        self._usage.learn(
            SessionUse(
                started_at=self._now,
                tools=tuple(dict.fromkeys(calls)),
                calls=len(calls),
                client=self._client.name,
                profile=session.profile,
            )
        )
        return _Priced(price.finish() or Cost(), len(first.shown), bool(first.hidden), listed)

    def _loaded(self, session: Session, selection: ListSelection) -> Exposure:
        """Return what the client sends to its model: of a list with preload hints, only the tools that have one."""
        exposure = selection.to_exposure(session.id, self._now)
        plan, view = self._filtering.state(session).plan, self._filtering.view(session)
        if selection.surface == Surface.HINTS and plan is not None and view is not None:
            warm = plan.tools or frozenset()
            tokens = view.tokens_of(warm)
            exposure = replace(
                exposure,
                surface=Surface.STABLE,
                shown=tuple(name for name in selection.shown if name in warm),
                hidden=tuple(name for name in selection.shown if name not in warm),
                tokens_shown=tokens,
                tokens_hidden=view.tokens - tokens,
            )
        search = HOST_LIST_TOKENS if self._client.has_search else 0
        return replace(exposure, tokens_shown=exposure.tokens_shown + search, tokens_own=exposure.tokens_own + search)


class _UsageSoFar(UsageSource):
    """Estimates from the sessions so far, recomputed by the rule of warm sets."""

    def __init__(self, period: float, clock: Callable[[], float]) -> None:
        self._period = period
        self._clock = clock
        self._uses: list[SessionUse] = []
        self._model = UsageModel((), 0.0)
        self._warm_set: WarmSet | None = None

    def learn(self, use: SessionUse) -> None:
        """Add a session."""
        self._uses.append(use)

    async def refresh(self, session: Session) -> None:
        now = self._clock()
        self._model = UsageModel((self._uses, self._uses), now)
        usage = self._model.usage
        if usage.evidence and (self._warm_set is None or self._warm_set.is_due(usage.evidence, now, self._period)):
            self._warm_set = WarmSet(
                principal="", client=session.client.name, profile=session.profile, usage=usage, created_at=now
            )

    def usage(self, session: Session) -> Usage | None:
        return None if self._warm_set is None else self._warm_set.usage

    def model(self, session: Session) -> UsageModel:
        return self._model


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    name: str
    score: float = 1.0
    probability: float = 1.0
    why: str = "by its name"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Matches:
    hits: Sequence[_Match]
    near: Sequence[str] = ()
    abstained: bool = False


class _PerfectSearch(NullPrediction):
    """A search whose query is the name of the tool, and which finds that tool."""

    async def search(self, session: Session, query: str, limit: int, allowed: Callable[[str], bool]) -> Any:
        return _Matches(hits=[_Match(name=query)])


def _figures(judged: Sequence[_Priced], tools: int) -> CostMetrics:
    short = [each for each in judged if each.is_short]
    calls = sum(each.cost.calls for each in short)
    return CostMetrics(
        cost=Cost.sum(each.cost for each in judged),
        tools=tools,
        first_list=_mean([each.first_list for each in judged]),
        listed=sum(each.listed for each in short) / calls if calls else None,
    )


def _most_used(servers: Mapping[str, str], sessions: Iterable[Sequence[str]], max_tools: int) -> set[str]:
    use = Counter(servers[call] for calls in sessions for call in calls)
    sizes = Counter(servers.values())
    kept: set[str] = set()
    for server, _ in sorted(use.items(), key=lambda item: (-item[1], item[0])):
        if sum(sizes[each] for each in kept) + sizes[server] <= max_tools:
            kept.add(server)
    return kept


def _definition(row: JsonRow) -> dict[str, Any]:
    """Return a tool as a server lists it."""
    schema = row.get("input_schema")
    if not isinstance(schema, dict) or not schema:
        schema = _usual_schema(str(row["name"]))
    return {"name": row["name"], "description": row.get("description") or "", "inputSchema": schema}


def _usual_schema(name: str) -> dict[str, Any]:
    """Return a schema of a usual size for a tool whose schema the set does not have."""
    described = {"type": "string", "description": "what the tool needs to know of this"}
    return {"type": "object", "properties": {f"parameter_{place}": described for place in range(2 + digest(name) % 6)}}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
