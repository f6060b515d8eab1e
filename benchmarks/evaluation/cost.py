"""What sessions of a data set cost through riglm, without a proxy, and with the tool search of a host.

Lists and search results come from the same components as in the proxy, and are priced like recorded ones.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.evaluation.dataset import CATALOG, DatasetError, Row, rows
from benchmarks.evaluation.sequences import read_sessions
from riglm.application.prediction.prediction_settings import Strategy
from riglm.application.reports.report import CostMetrics, mean_or_zero
from riglm.application.reports.session_replay import PricedSession, SessionReplay, usual_schema
from riglm.cli.output import progress
from riglm.domain import jsonrpc
from riglm.domain.client_support import NO_TOOL_SEARCH
from riglm.domain.jsonrpc import Raw
from riglm.domain.list_plan import Prices
from riglm.domain.schemas.filtering import FilteringSettings
from riglm.domain.session import ClientInfo, IdentificationMethod, ProtocolEra, Session, Transport
from riglm.domain.session_cost import DEFAULT_SIZES, Cost, SessionSizes
from riglm.domain.tool import Tool, ToolCatalog

MAX_CALLS: Final = 40
"""Maximum number of calls of a session that are priced."""

_MIN_CALLS: Final = 2
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


def read_cost_set(directory: Path, *, side: str, max_tools: int | None = None) -> CostSet:
    """Read a data set; with `max_tools`, only the servers used most, while their tools are no more than that.

    Raises:
        DatasetError: no session is left.
    """
    found = read_sessions(directory, side=side, limit=10**9)
    servers = {tool.name: tool.server for tool in found.dataset.tools}
    if max_tools is not None and max_tools < len(servers):
        kept = _most_used(servers, (session.calls for session in found.sessions), max_tools)
        servers = {name: server for name, server in servers.items() if server in kept}
    calls = ([call for call in session.calls if call in servers] for session in found.sessions)
    sessions = tuple(tuple(each[:MAX_CALLS]) for each in calls if len(each) >= _MIN_CALLS)
    if not sessions:
        raise DatasetError(f"{directory}: no session has {_MIN_CALLS} calls of these tools")
    raw = (_definition(row) for row in rows(directory / CATALOG) if row["name"] in servers)
    catalog = ToolCatalog(tuple(Tool(str(one["name"]), Raw(jsonrpc.encode(one))) for one in raw))
    return CostSet(name=directory.name, catalog=catalog, servers=servers, sessions=sessions)


async def evaluate_cost(
    found: CostSet,
    rules: FilteringSettings,
    prices: Prices,
    strategy: Strategy,
    *,
    learn: int,
    judge: int,
    client: ReplayedClient = ReplayedClient(),  # frozen
    sizes: SessionSizes = DEFAULT_SIZES,
) -> CostMetrics:
    """Learn from the first sessions and price those that follow, which are learned from as well."""
    replay, judged = SessionReplay(rules, prices, strategy, found.servers, sizes), []
    sessions = found.sessions[: learn + judge]
    with progress(found.name, len(sessions)) as advance:
        for place, calls in enumerate(sessions):
            session = Session(
                started_at=place * _SECONDS_BETWEEN_SESSIONS,
                era=ProtocolEra.HANDSHAKE,
                transport=Transport.STDIO,
                method=IdentificationMethod.PROCESS,
                client=ClientInfo(name=client.name),
                metadata={NO_TOOL_SEARCH: client.no_tool_search},
            )
            priced = await replay.price(session, found.catalog, calls, has_search=client.has_search)
            if place >= learn:
                judged.append(priced)
            advance(1)
    return _figures(judged, len(found.catalog.tools))


def _figures(judged: Sequence[PricedSession], tools: int) -> CostMetrics:
    short = [each for each in judged if each.is_short]
    calls = sum(len(each.hits) for each in short)
    return CostMetrics(
        cost=sum((each.cost for each in judged), Cost()),
        tools=tools,
        first_list=mean_or_zero([each.first_list for each in judged]),
        listed=sum(sum(each.hits) for each in short) / calls if calls else None,
    )


def _most_used(servers: Mapping[str, str], sessions: Iterable[Sequence[str]], max_tools: int) -> set[str]:
    use = Counter(servers[call] for calls in sessions for call in calls)
    sizes = Counter(servers.values())
    kept: set[str] = set()
    for server, _ in sorted(use.items(), key=lambda item: (-item[1], item[0])):
        if sum(sizes[each] for each in kept) + sizes[server] <= max_tools:
            kept.add(server)
    return kept


def _definition(row: Row) -> dict[str, Any]:
    """Return a tool as a server lists it."""
    schema = row.get("input_schema")
    if not isinstance(schema, dict) or not schema:
        schema = usual_schema(str(row["name"]))
    return {"name": row["name"], "description": row.get("description") or "", "inputSchema": schema}
