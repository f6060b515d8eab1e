"""What do sessions cost in each host: without riglm, with a tool search alone, and through riglm?

    python -m benchmarks.hosts.price [--data DIR] [--set NAME] [--tools N ...] [--learn N] [--judge N]
        [--search-reliability P] [--json]

The hosts are those of `benchmarks.hosts`. Those that load tools in the same way and get the same surface from riglm
share a row. riglm learns from the first development sessions of a set and prices those that follow, as
`python -m benchmarks.evaluation cost` does. Of a list with preload hints, a host loads the tools that have one, and
searches for the others. A host that searches has its search tool next to riglm's list as well. `no proxy` is a host
that loads every tool, and `search` is one whose tool search defers all of them. Exit code 1 if riglm saves no request
of the search in a row, or is dearer. DIR is `RIGLM_EVAL_DATA`, by default `../shared/data`.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.evaluation.cost import CostSet, ReplayedClient, evaluate_cost, read_cost_set
from benchmarks.evaluation.dataset import DatasetError, find_sets
from benchmarks.hosts.rows import HOSTS, Host, Loading
from riglm.application.prediction.prediction_settings import prediction_settings
from riglm.domain.client_support import CLIENTS, choose_surface, no_tool_search
from riglm.domain.exposure import Surface
from riglm.domain.list_plan import Prices
from riglm.domain.schemas.settings import Settings
from riglm.domain.session import ClientInfo, ProtocolEra

_SIDE: Final = "dev"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGroup:
    """Hosts whose sessions have the same price."""

    hosts: tuple[str, ...]
    loading: Loading
    surface: Surface
    client: ReplayedClient


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRow:
    """Prices relative to no proxy, and model requests of a session, of one group with one catalog.

    `first_list` is the number of tools that riglm has the host load, `listed` the share of calls of such tools.
    """

    tools: int
    hosts: tuple[str, ...]
    loading: str
    surface: str
    no_proxy_requests: float
    search: float
    search_requests: float
    riglm: float
    riglm_requests: float
    first_list: float
    listed: float | None

    @property
    def saved(self) -> float:
        """Return the requests of a session that riglm saves, compared with the search."""
        return self.search_requests - self.riglm_requests

    @property
    def pays(self) -> bool:
        """True if riglm saves requests of the search and is not dearer."""
        return self.saved > 0 and self.riglm <= self.search


def group_hosts(hosts: Sequence[Host] = HOSTS) -> list[HostGroup]:
    """Return the hosts by how they load tools and what riglm gives them; those that run programs have no price."""
    groups: dict[tuple[Loading, Surface, int | None], HostGroup] = {}
    for host in hosts:
        if host.loading is Loading.PROGRAMS:
            continue
        known = next(each for each in CLIENTS if each.key == (host.client or host.title.lower()))
        name = known.names[0].rstrip("*")
        no_search = no_tool_search(ClientInfo(name=name, version=host.version), host.variables)
        surface = choose_surface(name, ProtocolEra.HANDSHAKE, {}, no_search).surface
        client = ReplayedClient(name=name, no_tool_search=no_search, has_search=host.loading is Loading.SEARCHED)
        key = (host.loading, surface, known.most_tools)
        titles = (*groups[key].hosts, host.title) if key in groups else (host.title,)
        groups[key] = HostGroup(hosts=titles, loading=host.loading, surface=surface, client=client)
    return list(groups.values())


def price_group(group: HostGroup, found: CostSet, prices: Prices, learn: int, judge: int) -> PriceRow:
    """Return the prices of a group."""
    settings = Settings()
    figures = asyncio.run(
        evaluate_cost(
            found,
            settings.filtering,
            prices,
            prediction_settings(settings).strategy,
            learn=learn,
            judge=judge,
            client=group.client,
        )
    )
    cost = figures.cost
    return PriceRow(
        tools=len(found.catalog.tools),
        hosts=group.hosts,
        loading=group.loading,
        surface=group.surface,
        no_proxy_requests=round(cost.no_proxy_requests / cost.sessions, 1),
        search=round(cost.host_search / cost.no_proxy, 3),
        search_requests=round(cost.host_search_requests / cost.sessions, 1),
        riglm=round(cost.riglm / cost.no_proxy, 3),
        riglm_requests=round(cost.riglm_requests / cost.sessions, 1),
        first_list=round(figures.first_list, 1),
        listed=None if figures.listed is None else round(100 * figures.listed, 1),
    )


def show(rows: Sequence[PriceRow]) -> None:
    """Print the rows as a table."""
    table = Table(title="Price relative to no proxy; model requests of a session", title_justify="left")
    for column in ("tools", "hosts", "the host loads", "surface"):
        table.add_column(column, overflow="fold", justify="right" if column == "tools" else "left")
    for column in ("no proxy", "search", "riglm", "first list", "saved", "pays"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row.tools),
            "; ".join(row.hosts),
            row.loading,
            row.surface,
            f"1.00; {row.no_proxy_requests:.1f}",
            f"{row.search:.2f}; {row.search_requests:.1f}",
            f"{row.riglm:.2f}; {row.riglm_requests:.1f}",
            f"{row.first_list:.1f}",
            f"{row.saved:.1f}",
            "yes" if row.pays else "NO",
        )
    Console(width=150).print(table)


def _read_sets(data: Path, name: str, sizes: Sequence[int], learn: int) -> list[CostSet]:
    [directory] = find_sets(data, [name], side=_SIDE, file="sessions.jsonl")
    sets = [read_cost_set(directory, side=_SIDE, max_tools=tools) for tools in sizes]
    count = min(len(found.sessions) for found in sets)
    if count <= learn:
        raise DatasetError(
            f"{directory}: {count} sessions are too few to price any after --learn {learn} — fix: a smaller --learn"
        )
    return sets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = Path(os.environ.get("RIGLM_EVAL_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=data, metavar="DIR", help="directory of the data sets")
    parser.add_argument("--set", default="toolathlon", metavar="NAME", help="data set with sessions")
    parser.add_argument("--tools", type=int, nargs="+", default=[60, 120, 525], metavar="N", help="catalog sizes")
    parser.add_argument("--learn", type=int, default=50, metavar="N", help="sessions to learn from")
    parser.add_argument("--judge", type=int, default=30, metavar="N", help="sessions to price then")
    reliability = Prices().search_reliability
    parser.add_argument(
        "--search-reliability", type=float, default=reliability, metavar="P", help="prices.search_reliability"
    )
    parser.add_argument("--json", action="store_true", help="print JSON only")
    given = parser.parse_args(arguments)
    if given.learn < 0 or given.judge < 1 or min(given.tools) < 1:
        parser.error("--learn must be at least 0, --judge and --tools at least 1")
    if not 0 <= given.search_reliability <= 1:
        parser.error("--search-reliability must be between 0 and 1")
    try:
        sets = _read_sets(given.data, given.set, given.tools, given.learn)
    except DatasetError as error:
        print(f"could not run: {error}", file=sys.stderr)
        return 2
    prices, groups, rows = Prices(search_reliability=given.search_reliability), group_hosts(), []
    for found in sets:
        rows += [price_group(group, found, prices, given.learn, given.judge) for group in groups]
    if given.json:
        print(json.dumps([asdict(row) | {"saved": round(row.saved, 1), "pays": row.pays} for row in rows], indent=1))
    else:
        show(rows)
    return 0 if all(row.pays for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
