"""Tools and how they were used, and all at a glance."""

import re
from typing import Annotated, Final, Literal

from fastapi import Path, Query
from pydantic import Field

from riglm.adapters.control.request import told
from riglm.adapters.control.route import operations
from riglm.adapters.control.shapes import (
    PRINTED,
    Cursor,
    Flag,
    GivenTime,
    Limit,
    NextCursor,
    Port,
    Shape,
    Since,
    Time,
    flat,
)
from riglm.domain.control import MOST_BUCKETS, NotThere
from riglm.ports.control import ControlPort

router: Final = operations("statistics")

_LONGEST_NAME: Final = 512

Named = Annotated[
    str, Query(max_length=_LONGEST_NAME, pattern=PRINTED, description="The name that clients use, with any characters.")
]
"""A tool by its name among the parameters."""


class Tool(Shape):
    """How one tool was used."""

    tool: str
    upstream: str
    invocations: int
    uses: int = Field(description="The invocations in which it ran, with or without an error of the tool.")
    failures: int
    sessions: int
    listed: int = Field(description="The invocations of it while it was in the list of the session.")
    searched: int
    named: int = Field(description="The invocations of it by a name that was in no list of the session.")
    median_ms: float | None
    p95_ms: float | None
    last_used: Time | None


class ToolPage(Shape):
    """A part of all tools, most used first."""

    items: list[Tool]
    next_cursor: NextCursor


class Companion(Shape):
    """A tool that was used in the same sessions."""

    tool: str
    count: int
    mean_distance: float = Field(description="How many calls apart, on average.")


class Bucket(Shape):
    """What happened in some seconds."""

    at: Time
    seconds: float
    calls: int
    failures: int
    listed: int
    searched: int
    named: int
    lists: int
    mean_shown: float | None
    mean_available: float | None


class Series(Shape):
    """What happened over time, the oldest first."""

    buckets: list[Bucket]


class ToolDetail(Tool):
    """A tool with its company and its calls over time."""

    cooccurrences: list[Companion]
    series: Series


class ToolPair(Shape):
    """Two tools that were used in the same sessions."""

    a: str
    b: str
    count: int
    mean_distance: float = Field(description="How many calls apart, on average.")


class CooccurrenceMap(Shape):
    """The tools that are used together most, and the pairs among them."""

    tools: list[str]
    pairs: list[ToolPair]


class SessionTotals(Shape):
    """How many sessions there are."""

    active: int
    total: int


class PriceTotals(Shape):
    """What the model requests of the latest sessions cost, up to 1,000 that used a tool."""

    mode: Literal["enforce", "shadow", "off"] = Field(
        description="`shadow`: nothing was hidden, and the prices are those of the lists that would have been shown."
    )
    sessions: int
    of_no_proxy: float | None = Field(description="Relative to no proxy; null without sessions.")
    of_host_search: float | None = Field(description="Relative to the tool search of a host; null without sessions.")


class ZeroHop(Shape):
    """How tools were found while a list hid something, in the sessions of the price."""

    hits: int = Field(description="In the list, or suggested by riglm.")
    searched: int
    missed: int = Field(
        description="By a name that was in no list of the session: of clients that keep lists from session to session "
        "also the calls before they asked for one."
    )
    rate: float | None = Field(description="The share of hits; null without uses.")


class ListTotals(Shape):
    """What the lists came to."""

    shown: int
    changes: int
    mean_shown: float | None
    mean_available: float | None
    reduction: float | None = Field(description="The share of the tools that lists left out; null without lists.")


class TokenTotals(Shape):
    """Estimated tokens of lists."""

    shown: int
    hidden: int
    own: int = Field(description="Of meta-tools.")
    resent: int = Field(description="Sent again because a list changed.")
    net: int = Field(description="What was saved, less what it cost.")


class RecordTotals(Shape):
    """What became of this process's records: accepted = stored + queued + spooled + dropped."""

    accepted: int
    stored: int
    queued: int
    spooled: int
    dropped: int
    reasons: dict[str, int] = Field(description="Why some were dropped.")


class ToolTotals(Shape):
    """How many tools there are."""

    known: int = Field(description="Of servers: those that were listed or ran, without meta-tools.")
    used: int
    never_used: int


class Summary(Shape):
    """All at a glance."""

    since: Time
    sessions: SessionTotals
    calls: int = Field(description="Of servers' tools; those of meta-tools are left out, here and in the series.")
    failures: int = Field(description="Of those calls.")
    price: PriceTotals
    zero_hop: ZeroHop
    lists: ListTotals
    tokens: TokenTotals
    records: RecordTotals
    tools: ToolTotals
    searches: int


@router.get("/tools", summary="All tools", responses=told(404, 503), response_model=ToolPage)
async def tools(
    port: Port,
    *,
    unused: Annotated[Flag, Query(description="Only those that were never used.")] = False,
    since: Since = 0.0,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> object:
    """Every tool that was listed or ran, or that a server has now: most used first, then by name.

    Meta-tools are among them, with the upstream `riglm`; the summary counts those of servers alone. A name that
    only clients used, and no server ever listed, is none. A call that riglm refused counts for no tool.

    Pages are read one after the other, while tools are used: one whose count grows meanwhile may move in front of the
    cursor, and be in no page. Up to 1,000 tools fit into one page, which is of one moment.
    """
    return await port.tools(unused_only=unused, since=since, limit=limit, cursor=cursor)


@router.get("/tools/{tool_name:path}/stats", summary="One tool", responses=told(404, 503), response_model=ToolDetail)
async def tool(
    port: Port, tool_name: Annotated[str, Path(description="As clients see it.", min_length=1)], since: Since = 0.0
) -> object:
    """Over all servers that had a tool of this name; the lists of the series are all lists.

    Names that a path cannot have, such as `..`, are asked for at `/tools/stats`.
    """
    if not re.fullmatch(PRINTED, tool_name):
        raise NotThere("there is no tool of such a name")
    return await _told(port, tool_name, since)


@router.get("/tools/stats", summary="One tool of any name", responses=told(404, 503), response_model=ToolDetail)
async def tool_of_any_name(port: Port, name: Named, since: Since = 0.0) -> object:
    """As at `/tools/{tool_name}/stats`."""
    return await _told(port, name, since)


async def _told(port: ControlPort, name: str, since: float) -> dict[str, object]:
    found = await port.tool(name, since=since)
    return flat(found.tool, cooccurrences=found.cooccurrences, series={"buckets": found.series})


@router.get("/stats/summary", summary="All at a glance", responses=told(503), response_model=Summary)
async def summary(port: Port, since: Since = 0.0) -> object:
    """Price, sessions, calls, zero hops, lists, tokens, records and tools in numbers."""
    return await port.summary(since=since)


@router.get("/stats/series", summary="What happened over time", responses=told(503), response_model=Series)
async def series(
    port: Port,
    since: Annotated[GivenTime | None, Query(description="The begin; by default a day before the end.")] = None,
    until: Annotated[GivenTime | None, Query(description="The end; by default now.")] = None,
    buckets: Annotated[int, Query(ge=1, le=MOST_BUCKETS, description="Number of parts of equal length.")] = 60,
) -> object:
    """Calls, how their tools were found, and lists; none where the end is not after the begin."""
    return {"buckets": await port.series(since=since, until=until, buckets=buckets)}


@router.get("/stats/cooccurrence", summary="What is used together", responses=told(503), response_model=CooccurrenceMap)
async def cooccurrence(
    port: Port, limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of tools.")] = 30
) -> object:
    """The tools that are used together most, and their pairs."""
    return await port.cooccurrence(limit=limit)
