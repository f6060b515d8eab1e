"""The operations of the control API, which refuse unknown and repeated parameters and bodies that are large or slow.

Error responses are problem documents (RFC 9457).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Body, Depends, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute, APIRouter
from pydantic import BaseModel, BeforeValidator, Field
from starlette.exceptions import HTTPException

from riglm.application.control import overrides, sessions, statistics
from riglm.application.control.running_proxy import CHANGE_SECONDS, RunningProxy
from riglm.domain.audit import AuditEvent
from riglm.domain.errors import ControlUnavailableError, NotFoundError, PreconditionError
from riglm.domain.schemas import control_api as models
from riglm.domain.schemas.control_api import TimeParameter

PROBLEM_TYPE: Final = "application/problem+json"


class FieldErrorModel(BaseModel):
    """One invalid part of a request."""

    path: str = Field(description="The part: a parameter, a header, or the path of a key of the body.")
    detail: str = Field(description="What is wrong with it, and the fix.")


class ProblemDetails(BaseModel):
    """An error."""

    type: str = Field(default="about:blank", description="`about:blank`: see `status`.")
    title: str = Field(description="The status in words.")
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What is wrong, and the fix.")
    errors: list[FieldErrorModel] | None = Field(default=None, description="Each invalid part of the request.")


def create_problem(
    status: int, detail: str, *, errors: Sequence[tuple[str, str]] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response with this status; `errors` are paths with what is wrong there."""
    parts = [FieldErrorModel(path=path, detail=text) for path, text in errors]
    title = _TITLES.get(status) or HTTPStatus(status).phrase
    document = ProblemDetails(title=title, status=status, detail=detail, errors=parts or None)
    return Response(document.model_dump_json(exclude_none=True), status, headers, media_type=PROBLEM_TYPE)


def describe_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of problems with these statuses for the OpenAPI document."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        found[status] = {"model": ProblemDetails, "description": _DESCRIPTIONS[status]}
        if status in _HEADERS:
            name, description = _HEADERS[status]
            header = {"schema": {"type": "string"}, "required": True, "description": description}
            found[status]["headers"] = {name: header}
    return found


_TITLES: Final = {421: "Misdirected Request", 422: "Unprocessable Content"}  # as RFC 9110 has them; Python's are older
_HEADERS: Final = {401: ("WWW-Authenticate", "`Bearer`."), 503: ("Retry-After", "In seconds.")}
_DESCRIPTIONS: Final = {
    400: "The body is no JSON.",
    401: "A token is missing, or it is not a right one.",
    403: "The token is read-only, the request comes from a page of another origin, or this cannot be changed.",
    404: "What was named is not there.",
    408: "The body did not come in time.",
    409: "It conflicts with the current state.",
    412: "If-Match names no version of this configuration.",
    413: "The body is too large.",
    415: "The body is not declared to be JSON.",
    421: "The Host header names another server.",
    422: "A part of the request is not usable; `errors` says which.",
    503: "The answer was not ready in time, or the store is unavailable.",
}


MAX_BODY_BYTES: Final = 1 << 18
"""Maximum size of a request body."""

BODY_SECONDS: Final = 10.0
"""Seconds to wait for a request body."""


def create_router(tag: str, *statuses: int) -> APIRouter:
    """Return a router for operations that are named like their functions; all may return these error statuses."""
    return APIRouter(
        route_class=StrictRoute,
        tags=[tag],
        responses=describe_problems(401, 403, 421, 422, *statuses),
        generate_unique_id_function=lambda route: route.name,
    )


class StrictRoute(APIRoute):
    """An operation that refuses unknown and repeated query parameters."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return the operation behind these checks."""
        answer = super().get_route_handler()
        known = {field.alias for field in self.dependant.query_params}
        unknown = f"there is no such parameter; there is {', '.join(sorted(known)) or 'none'}"

        async def handle(request: Request) -> Response:
            given = [name for name, _ in request.query_params.multi_items()]
            wrong = {name: unknown for name in given if name not in known}
            wrong |= {name: "it is given more than once" for name in known if given.count(name) > 1}
            if wrong:
                faults = [{"type": "riglm", "loc": ("query", name), "msg": text} for name, text in wrong.items()]
                raise RequestValidationError(faults[:20])
            return await answer(JsonRequest(request.scope, request.receive))

        return handle


class JsonRequest(Request):
    """A request whose body must be strict JSON that is small and arrives in time."""

    async def body(self) -> bytes:
        """Return the body, read once."""
        if not hasattr(self, "_body"):
            if self.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise HTTPException(415, "send the body as JSON, with Content-Type: application/json")
            content = b""
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    async for part in self.stream():
                        content += part
                        if len(content) > MAX_BODY_BYTES:
                            raise HTTPException(413, f"send {MAX_BODY_BYTES} bytes at most", {"Connection": "close"})
            except TimeoutError:
                raise HTTPException(408, "the body did not come in time", {"Connection": "close"}) from None
            self._body = content
        return self._body

    async def json(self) -> Any:
        """Return the value; NaN, infinity and lone surrogates are refused."""
        try:
            return msgspec.json.decode(await self.body())
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise HTTPException(400, "the body is no JSON, or too deeply nested") from None


async def _get_proxy(request: Request) -> RunningProxy:
    proxy: RunningProxy = request.app.state.proxy
    return proxy


def _parse_flag(value: object) -> bool:
    if value not in ("true", "false", True, False):
        raise ValueError("write true or false")
    return value in ("true", True)


Proxy = Annotated[RunningProxy, Depends(_get_proxy)]
"""The proxy that the operation reads or changes."""

Flag = Annotated[bool, BeforeValidator(_parse_flag)]
"""A boolean, with one spelling."""

Since = Annotated[TimeParameter, Query(description="Only what happened since then.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items.")]
Cursor = Annotated[
    str | None,
    Query(max_length=512, pattern="^[A-Za-z0-9_=.:~-]+$", description="A `next_cursor`, to go on from there."),
]


MetricsSource = Callable[[str], tuple[bytes, str]]
"""Returns, for an Accept header, the text of all metrics and its media type."""

_HEALTH: Final = create_router("health", 503)
_METRICS: Final = create_router("health")
_SESSIONS: Final = create_router("sessions", 404, 503)
_STATISTICS: Final = create_router("statistics", 503)
_TOOLS: Final = create_router("statistics", 404, 503)
_OVERRIDES: Final = create_router("overrides", 404, 503)
_TRUST: Final = create_router("trust", 503)
_CONFIGURATION: Final = create_router("configuration", 503)
ROUTERS: Final = (_HEALTH, _METRICS, _SESSIONS, _TOOLS, _STATISTICS, _OVERRIDES, _TRUST, _CONFIGURATION)

_BODY_PROBLEMS: Final = describe_problems(400, 408, 409, 413, 415)


@_HEALTH.get("/health", summary="How riglm is")
async def get_health(proxy: Proxy) -> models.Health:
    """Servers, store and embedder; the status is 200 as long as riglm answers."""
    return await statistics.get_health(proxy)


@_HEALTH.get(
    "/ready",
    summary="Whether clients can be served as they should be",
    responses={503: {"model": models.Readiness, "description": "Not ready; see `reasons`."}},
)
async def get_readiness(proxy: Proxy, response: Response) -> models.Readiness:
    """Readiness for load balancers."""
    try:
        readiness = await statistics.get_readiness(proxy)
    except ControlUnavailableError as error:
        readiness = models.Readiness(ready=False, reasons=(str(error),))
    response.status_code = 200 if readiness.ready else 503
    return readiness


@_HEALTH.get("/embedder", summary="The embedder's capability signal", response_model=models.EmbedderSignal)
async def get_embedder(proxy: Proxy) -> Any:
    """The embedder that is used, next to the configured one."""
    return await statistics.get_embedder(proxy)


@_METRICS.get(
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
async def get_metrics(request: Request, accept: Annotated[str, Header(include_in_schema=False)] = "") -> Response:
    """What happened since this process started, and how it is now."""
    source: MetricsSource = request.app.state.metrics
    text, media_type = source(accept)
    return Response(text, headers={"Content-Type": media_type})


SessionId = Annotated[UUID, Path(description="The id of a session.")]


@_SESSIONS.get("/sessions", summary="All sessions")
async def list_sessions(
    proxy: Proxy,
    *,
    active: Annotated[Flag, Query(description="Only those that may still grow.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> models.Page[models.SessionEntry]:
    """All recorded sessions, newest first. Following the cursors misses no session and returns none twice.

    Unlike in the statistics, sessions imported from transcripts are included, and so are calls of meta-tools.
    """
    return await sessions.list_sessions(proxy, active_only=active, limit=limit, cursor=cursor)


@_SESSIONS.get("/sessions/{session_id}", summary="One session")
async def get_session(proxy: Proxy, session_id: SessionId) -> models.SessionDetail:
    """With its latest calls and lists."""
    return await sessions.get_session(proxy, session_id)


@_SESSIONS.get("/predictions/{session_id}", summary="A session's next list")
async def get_prediction(proxy: Proxy, session_id: SessionId) -> models.SessionPrediction:
    """Every tool with its rank, its score by signal, and why it is shown or not. Asking changes nothing."""
    return await sessions.get_prediction(proxy, session_id)


@_TOOLS.get("/tools", summary="All tools")
async def list_tools(
    proxy: Proxy,
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
    return await statistics.list_tools(proxy, unused_only=unused, since=since, limit=limit, cursor=cursor)


@_TOOLS.get("/tools/{tool_name:path}/stats", summary="One tool")
async def get_tool(
    proxy: Proxy, tool_name: Annotated[str, Path(description="As clients see it.", min_length=1)], since: Since = 0.0
) -> models.ToolDetail:
    """Over all servers that had a tool of this name; the lists of the series are all lists.

    Names that a path cannot have, such as `..`, are asked for at `/tools/stats`.
    """
    if not re.fullmatch(models.PRINTABLE, tool_name):
        raise NotFoundError("there is no tool of such a name")
    return await statistics.get_tool(proxy, tool_name, since=since)


@_TOOLS.get("/tools/stats", summary="One tool of any name")
async def get_tool_by_name(
    proxy: Proxy,
    name: Annotated[
        str, Query(min_length=1, pattern=r"^[^\x00]+$", description="The name that clients use, with any characters.")
    ],
    since: Since = 0.0,
) -> models.ToolDetail:
    """As at `/tools/{tool_name}/stats`."""
    return await statistics.get_tool(proxy, name, since=since)


@_TRUST.get("/tools/changes", summary="Tools that are not as approved")
async def list_tool_changes(proxy: Proxy) -> models.ToolChanges:
    """With what changed in their definitions, by server and name."""
    return await statistics.list_tool_changes(proxy)


@_TRUST.post("/tools/approve", summary="Approve a tool", responses={**_BODY_PROBLEMS, **describe_problems(404)})
async def approve_tool(proxy: Proxy, approval: models.ToolApproval) -> models.ToolChangeEntry:
    """The definition counts as approved when this is answered."""
    return await statistics.approve_tool(proxy, approval)


@_STATISTICS.get("/stats/summary", summary="All at a glance")
async def get_summary(proxy: Proxy, since: Since = 0.0) -> models.Summary:
    """Verdict, price, sessions, calls, hit rate, lists, tokens, records and tools in numbers."""
    return await statistics.get_summary(proxy, since)


@_STATISTICS.get("/stats/series", summary="What happened over time")
async def get_series(
    proxy: Proxy,
    since: Annotated[
        models.TimeParameter | None, Query(description="The begin; by default a day before the end.")
    ] = None,
    until: Annotated[models.TimeParameter | None, Query(description="The end; by default now.")] = None,
    buckets: Annotated[int, Query(ge=1, le=models.MAX_BUCKETS, description="Number of parts of equal length.")] = 60,
    sessions_since: Annotated[
        models.TimeParameter | None,
        Query(
            description="Count the sessions that started since then; by default since the begin. That of "
            "`/stats/summary` gives the same calls and lists."
        ),
    ] = None,
) -> models.Series:
    """Calls, how their tools were found, and lists; none where the end is not after the begin.

    They are those that the summary counts: of the same sessions, and lists of its mode.
    """
    return await statistics.get_series(proxy, since=since, until=until, buckets=buckets, sessions_since=sessions_since)


@_STATISTICS.get("/stats/cooccurrence", summary="What is used together")
async def get_cooccurrences(
    proxy: Proxy, limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of tools.")] = 30
) -> models.CooccurrenceMap:
    """The tools that are used together most, and their pairs."""
    return await statistics.get_cooccurrences(proxy, limit)


@_STATISTICS.get("/stats/clusters", summary="Kinds of work")
async def get_session_clusters(
    proxy: Proxy, limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of clusters.")] = 20
) -> models.SessionClusters:
    """The latest sessions, grouped by servers, tools and contexts: what is done, with which tools, in which order."""
    return await statistics.get_session_clusters(proxy, limit)


OverrideId = Annotated[UUID, Path(description="The id of an override.")]


@_OVERRIDES.post(
    "/override",
    summary="Make an override",
    status_code=201,
    responses={
        **_BODY_PROBLEMS,
        201: {
            "description": "It is in force: the next list follows it, and clients are notified.",
            "headers": {"Location": {"schema": {"type": "string"}, "required": True, "description": "Its path."}},
        },
    },
    response_model=models.OverrideEntry,
)
async def put_override(proxy: Proxy, override: models.OverrideCreate, response: Response) -> Any:
    """Show, hide or pin one tool, for all sessions, for one session, or for one caller."""
    made = await overrides.put_override(proxy, override)
    response.headers["Location"] = f"/override/{made.id}"
    return made


@_OVERRIDES.get("/override", summary="All overrides", response_model=models.Page[models.OverrideEntry])
async def list_overrides(proxy: Proxy, limit: Limit = 100, cursor: Cursor = None) -> Any:
    """Those that have not expired, the latest first."""
    return await overrides.list_overrides(proxy, limit=limit, cursor=cursor)


@_OVERRIDES.get("/override/{override_id}", summary="One override", response_model=models.OverrideEntry)
async def get_override(proxy: Proxy, override_id: OverrideId) -> Any:
    """One override."""
    return await overrides.get_override(proxy, override_id)


@_OVERRIDES.delete(
    "/override/{override_id}",
    summary="Remove an override",
    status_code=204,
    responses={204: {"description": "It counts no longer."}},
    response_class=Response,
)
async def delete_override(proxy: Proxy, override_id: OverrideId) -> Response:
    """What it wanted counts no longer when this is answered."""
    await overrides.delete_override(proxy, override_id)
    return Response(status_code=204)


_VERSION: Final = re.compile(r'(?:W/)?"([0-9]{1,15})"')


_ETAG: Final = {"schema": {"type": "string"}, "required": True, "description": "The version, for If-Match."}
_DISCLOSED: Final[dict[str, Any]] = {
    "content": {"application/json": {"schema": {"type": "object"}}},
    "description": "The configuration in use, by the schema of `riglm config schema`; `***` replaces a secret.",
    "headers": {"ETag": _ETAG},
}


@_CONFIGURATION.get("/config", summary="The configuration in force", responses={200: _DISCLOSED})
async def get_configuration(proxy: Proxy) -> Response:
    """The whole configuration including defaults; `***` replaces a secret."""
    shown = await proxy.loop.look(proxy.configuration.shown)
    return _answer(shown.document, shown.version)


@_CONFIGURATION.put(
    "/config",
    summary="Change the configuration",
    responses={**describe_problems(400, 408, 409, 412, 413, 415), 200: _DISCLOSED},
)
async def put_configuration(
    proxy: Proxy,
    document: Annotated[dict[str, Any], Body(description="Any part of a document by `riglm config schema`.")],
    *,
    if_match: Annotated[
        str | None,
        Header(
            alias="If-Match",
            pattern=r'^(\*|(W/)?"[!#-~]{0,200}")$',
            description="Change it only if this is the version in force: an ETag, as given.",
        ),
    ] = None,
) -> Response:
    """Replace the whole document or parts of it: missing keys stay, null restores the default, `***` keeps a secret.

    It counts for all that begins from then on; calls that run end as they began. What is not valid as a whole changes
    nothing. The change is kept in the store, above the file and the environment, and all riglm processes on that store
    follow it; `riglm config reset` removes it. A key that is read at the start only is refused.
    """
    expected = None if if_match in {None, "*"} else _parse_version(str(if_match))
    changed = await proxy.loop.ask(
        lambda: proxy.configuration.put(document, expected_version=expected), timeout_seconds=CHANGE_SECONDS
    )
    proxy.record_audit(AuditEvent.CONFIGURATION_CHANGED, {"sections": sorted(document), "version": changed.version})
    return _answer(changed.document, changed.version)


def _answer(document: Any, version: int) -> Response:
    headers = {"ETag": f'"{version}"'}
    return Response(msgspec.json.encode(document), headers=headers, media_type="application/json")


def _parse_version(tag: str) -> int:
    """Return the version of an ETag.

    Raises:
        PreconditionError: it is not of riglm's configuration.
    """
    found = _VERSION.fullmatch(tag)
    if found is None:
        raise PreconditionError(
            f"If-Match: {tag} is no version of this configuration — fix: give the ETag of GET /config"
        )
    return int(found[1])
