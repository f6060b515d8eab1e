"""The operations of the control API on health, sessions, statistics and overrides."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from fastapi import Body, Header, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from riglm.adapters.control.request import error_responses
from riglm.adapters.control.route import PRINTED, Cursor, Flag, GivenTime, Limit, Port, Since, TimeMember, operations
from riglm.domain.control import ControlUnavailableError, NotFoundError, OverrideRequest
from riglm.domain.policy import OverrideKind, OverrideScope
from riglm.domain.schemas import control_api as models

MetricsSource = Callable[[str], tuple[bytes, str]]
"""Returns, for an Accept header, the text of all metrics and its media type."""

HEALTH: Final = operations("health", 503)
METRICS: Final = operations("health")
SESSIONS: Final = operations("sessions", 404, 503)
STATISTICS: Final = operations("statistics", 503)
OVERRIDES: Final = operations("overrides", 404, 503)
TRUST: Final = operations("trust", 503)
USAGE: Final = (SESSIONS, STATISTICS, OVERRIDES, TRUST)


@HEALTH.get("/health", summary="How riglm is")
async def health(port: Port) -> models.Health:
    """Servers, store and embedder; the status is 200 as long as riglm answers."""
    return await port.health()


@HEALTH.get(
    "/ready",
    summary="Whether clients can be served as they should be",
    responses={503: {"model": models.Readiness, "description": "Not ready; see `reasons`."}},
)
async def ready(port: Port, response: Response) -> models.Readiness:
    """Readiness for load balancers."""
    try:
        readiness = await port.readiness()
    except ControlUnavailableError as error:
        readiness = models.Readiness(ready=False, reasons=(str(error),))
    response.status_code = 200 if readiness.ready else 503
    return readiness


@HEALTH.get("/embedder", summary="The embedder's capability signal", response_model=models.EmbedderSignal)
async def embedder(port: Port) -> object:
    """The embedder that is used, next to the configured one."""
    return await port.embedder()


@METRICS.get(
    "/metrics",
    summary="All metrics, for Prometheus",
    responses={
        200: {
            "description": "In the text format of Prometheus, or of OpenMetrics when that is asked for.",
            "content": {
                kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")
            },
        }
    },
    response_class=Response,
)
async def metrics(request: Request, accept: Annotated[str, Header(include_in_schema=False)] = "") -> Response:
    """What happened since this process started, and how it is now."""
    source: MetricsSource = request.app.state.metrics
    text, media_type = source(accept)
    return Response(text, headers={"Content-Type": media_type})


SessionId = Annotated[UUID, Path(description="The id of a session.")]


@SESSIONS.get("/sessions", summary="All sessions")
async def sessions(
    port: Port,
    *,
    active: Annotated[Flag, Query(description="Only those that may still grow.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> models.Page[models.SessionEntry]:
    """All recorded sessions, newest first. Following the cursors misses no session and returns none twice.

    Unlike in the statistics, sessions imported from transcripts are included, and so are calls of meta-tools.
    """
    return await port.sessions(active_only=active, limit=limit, cursor=cursor)


@SESSIONS.get("/sessions/{session_id}", summary="One session")
async def session(port: Port, session_id: SessionId) -> models.SessionDetail:
    """With its latest calls and lists."""
    return await port.session(session_id)


@SESSIONS.get("/predictions/{session_id}", summary="A session's next list")
async def prediction(port: Port, session_id: SessionId) -> models.SessionPrediction:
    """Every tool with its rank, its score by signal, and why it is shown or not. Asking changes nothing."""
    return await port.prediction(session_id)


Named = Annotated[
    str, Query(min_length=1, pattern=r"^[^\x00]+$", description="The name that clients use, with any characters.")
]
"""A tool by its name among the parameters."""


@STATISTICS.get("/tools", summary="All tools", responses=error_responses(404))
async def tools(
    port: Port,
    *,
    unused: Annotated[Flag, Query(description="Only those that were never used.")] = False,
    since: Since = 0.0,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> models.Page[models.ToolEntry]:
    """Every tool that was listed or ran, or that a server has now: most used first, then by name.

    Its sessions are those of the summary. Meta-tools are left out. A name that only clients used, and no server ever
    listed, is no tool: its calls count in the summary only. A call that riglm refused counts for no tool.

    Pages are read one after the other, while tools are used: one whose count grows meanwhile may move in front of the
    cursor, and be in no page. Up to 1,000 tools fit into one page, which is of one moment.
    """
    return await port.tools(unused_only=unused, since=since, limit=limit, cursor=cursor)


@STATISTICS.get("/tools/{tool_name:path}/stats", summary="One tool", responses=error_responses(404))
async def tool(
    port: Port, tool_name: Annotated[str, Path(description="As clients see it.", min_length=1)], since: Since = 0.0
) -> models.ToolDetail:
    """Over all servers that had a tool of this name; the lists of the series are all lists.

    Names that a path cannot have, such as `..`, are asked for at `/tools/stats`.
    """
    if not re.fullmatch(PRINTED, tool_name):
        raise NotFoundError("there is no tool of such a name")
    return await port.tool(tool_name, since=since)


@STATISTICS.get("/tools/stats", summary="One tool of any name", responses=error_responses(404))
async def tool_of_any_name(port: Port, name: Named, since: Since = 0.0) -> models.ToolDetail:
    """As at `/tools/{tool_name}/stats`."""
    return await port.tool(name, since=since)


@TRUST.get("/tools/changes", summary="Tools that are not as approved")
async def tool_changes(port: Port) -> models.ToolChanges:
    """With what changed in their definitions, by server and name."""
    return await port.tool_changes()


class ToolApproval(BaseModel):
    """A tool to approve, with the digest of the definition that was looked at."""

    model_config = ConfigDict(extra="forbid", strict=True)

    server: str = Field(min_length=1, max_length=256, pattern=PRINTED)
    tool: str = Field(min_length=1, pattern=r"^[^\x00]+$", description="The server's own name for it.")
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")


@TRUST.post("/tools/approve", summary="Approve a tool", responses=error_responses(400, 404, 408, 409, 413, 415))
async def approve_tool(port: Port, approval: Annotated[ToolApproval, Body()]) -> models.ToolChangeEntry:
    """The definition counts as approved when this is answered."""
    return await port.approve_tool(approval.server, approval.tool, approval.digest)


@STATISTICS.get("/stats/summary", summary="All at a glance")
async def summary(port: Port, since: Since = 0.0) -> models.Summary:
    """Verdict, price, sessions, calls, hit rate, lists, tokens, records and tools in numbers."""
    return await port.summary(since=since)


@STATISTICS.get("/stats/series", summary="What happened over time")
async def series(
    port: Port,
    since: Annotated[GivenTime | None, Query(description="The begin; by default a day before the end.")] = None,
    until: Annotated[GivenTime | None, Query(description="The end; by default now.")] = None,
    buckets: Annotated[int, Query(ge=1, le=models.MAX_BUCKETS, description="Number of parts of equal length.")] = 60,
    sessions_since: Annotated[
        GivenTime | None,
        Query(
            description="Count the sessions that started since then; by default since the begin. That of "
            "`/stats/summary` gives the same calls and lists."
        ),
    ] = None,
) -> models.Series:
    """Calls, how their tools were found, and lists; none where the end is not after the begin.

    They are those that the summary counts: of the same sessions, and lists of its mode.
    """
    found = await port.series(since=since, until=until, buckets=buckets, sessions_since=sessions_since)
    return models.Series(buckets=found)


@STATISTICS.get("/stats/cooccurrence", summary="What is used together")
async def cooccurrence(
    port: Port, limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of tools.")] = 30
) -> models.CooccurrenceMap:
    """The tools that are used together most, and their pairs."""
    return await port.cooccurrence(limit=limit)


@STATISTICS.get("/stats/clusters", summary="Kinds of work")
async def session_clusters(
    port: Port, limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of clusters.")] = 20
) -> models.SessionClusters:
    """The latest sessions, grouped by servers, tools and contexts: what is done, with which tools, in which order."""
    return await port.session_clusters(limit=limit)


_YEAR: Final = 31_536_000

OverrideId = Annotated[UUID, Path(description="The id of an override.")]


class _OverrideCreate(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Annotated[OverrideKind, Field(strict=False)] = Field(
        description="`include` shows the tool and lifts a denial, unless it is for one session; `exclude` hides it; "
        "`pin` keeps it in every list, at its place in the catalogue's order, and lifts nothing."
    )
    tool: str = Field(min_length=1, max_length=256, pattern=PRINTED, description="As clients see it.")
    expires_at: TimeMember | None = Field(default=None, description="When it ends; null: when it is deleted.")
    expires_in: float | None = Field(
        default=None, gt=0, le=_YEAR, description="Seconds until it ends. Of both ends the earlier counts."
    )
    reason: str = Field(default="", max_length=500, pattern=r"^[^\x00]*$", description="For people.")


class GlobalOverrideCreate(_OverrideCreate):
    """An override for all sessions."""

    scope: Literal["all"] = "all"
    key: Literal[""] = ""


class SessionOverrideCreate(_OverrideCreate):
    """An override for one session."""

    scope: Literal["session"]
    key: Annotated[UUID, Field(strict=False)] = Field(description="The id of a session.")


class PrincipalOverrideCreate(_OverrideCreate):
    """An override for all sessions of one caller."""

    scope: Literal["principal"]
    key: str = Field(
        pattern=r"^[0-9a-f]{0,64}$",
        description="The keyed hash of the caller, as sessions have it; empty for callers without a name.",
    )


def _scope(given: Any) -> str | None:
    scope = given.get("scope", "all") if isinstance(given, dict) else getattr(given, "scope", None)
    return scope if isinstance(scope, str) else None


OverrideCreate = Annotated[
    Annotated[GlobalOverrideCreate, Tag("all")]
    | Annotated[SessionOverrideCreate, Tag("session")]
    | Annotated[PrincipalOverrideCreate, Tag("principal")],
    Discriminator(_scope),
    Body(),
]
"""A requested override; the meaning of `key` depends on the scope."""

OVERRIDE_MODELS: Final = frozenset(str(scope) for scope in OverrideScope)
"""The first part of an error location in an override: the model that it was validated as. No field has such a name."""


@OVERRIDES.post(
    "/override",
    summary="Make an override",
    status_code=201,
    responses={
        **error_responses(400, 408, 409, 413, 415),
        201: {
            "description": "It is in force: the next list follows it, and clients are notified.",
            "headers": {"Location": {"schema": {"type": "string"}, "required": True, "description": "Its path."}},
        },
    },
    response_model=models.OverrideEntry,
)
async def put_override(port: Port, override_request: OverrideCreate, response: Response) -> object:
    """Show, hide or pin one tool, for all sessions, for one session, or for one caller."""
    made = await port.put_override(
        OverrideRequest(
            **{
                **dict(override_request),
                "scope": OverrideScope(override_request.scope),
                "key": str(override_request.key),
            }
        )
    )
    response.headers["Location"] = f"/override/{made.id}"
    return made


@OVERRIDES.get("/override", summary="All overrides", response_model=models.Page[models.OverrideEntry])
async def overrides(port: Port, limit: Limit = 100, cursor: Cursor = None) -> object:
    """Those that have not expired, the latest first."""
    return await port.overrides(limit=limit, cursor=cursor)


@OVERRIDES.get("/override/{override_id}", summary="One override", response_model=models.OverrideEntry)
async def override(port: Port, override_id: OverrideId) -> object:
    """One override."""
    return await port.override(override_id)


@OVERRIDES.delete(
    "/override/{override_id}",
    summary="Remove an override",
    status_code=204,
    responses={204: {"description": "It counts no longer."}},
    response_class=Response,
)
async def delete_override(port: Port, override_id: OverrideId) -> Response:
    """What it wanted counts no longer when this is answered."""
    await port.delete_override(override_id)
    return Response(status_code=204)
