"""Tools and how they were used, and all at a glance."""

import re
from typing import Annotated, Final

from fastapi import Path, Query

from riglm.adapters.control.request import told
from riglm.adapters.control.route import operations
from riglm.adapters.control.shapes import PRINTED, Cursor, Flag, GivenTime, Limit, Port, Since
from riglm.domain.control import NotFoundError
from riglm.domain.schemas.control_api import MAX_BUCKETS, CooccurrenceMap, Page, Series, Summary, ToolDetail, ToolEntry

router: Final = operations("statistics")

_MAX_NAME_LENGTH: Final = 512

Named = Annotated[
    str,
    Query(max_length=_MAX_NAME_LENGTH, pattern=PRINTED, description="The name that clients use, with any characters."),
]
"""A tool by its name among the parameters."""


@router.get("/tools", summary="All tools", responses=told(404, 503), response_model=Page[ToolEntry])
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
        raise NotFoundError("there is no tool of such a name")
    return await port.tool(tool_name, since=since)


@router.get("/tools/stats", summary="One tool of any name", responses=told(404, 503), response_model=ToolDetail)
async def tool_of_any_name(port: Port, name: Named, since: Since = 0.0) -> object:
    """As at `/tools/{tool_name}/stats`."""
    return await port.tool(name, since=since)


@router.get("/stats/summary", summary="All at a glance", responses=told(503), response_model=Summary)
async def summary(port: Port, since: Since = 0.0) -> object:
    """Price, sessions, calls, zero hops, lists, tokens, records and tools in numbers."""
    return await port.summary(since=since)


@router.get("/stats/series", summary="What happened over time", responses=told(503), response_model=Series)
async def series(
    port: Port,
    since: Annotated[GivenTime | None, Query(description="The begin; by default a day before the end.")] = None,
    until: Annotated[GivenTime | None, Query(description="The end; by default now.")] = None,
    buckets: Annotated[int, Query(ge=1, le=MAX_BUCKETS, description="Number of parts of equal length.")] = 60,
) -> object:
    """Calls, how their tools were found, and lists; none where the end is not after the begin."""
    return Series(buckets=await port.series(since=since, until=until, buckets=buckets))


@router.get("/stats/cooccurrence", summary="What is used together", responses=told(503), response_model=CooccurrenceMap)
async def cooccurrence(
    port: Port, limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of tools.")] = 30
) -> object:
    """The tools that are used together most, and their pairs."""
    return await port.cooccurrence(limit=limit)
