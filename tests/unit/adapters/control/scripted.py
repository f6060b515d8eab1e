"""An inside that answers what a test put there, and notes what it was told."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from riglm.domain.control import (
    ConfigurationUpdate,
    ConflictError,
    FieldError,
    InvalidInputError,
    NotFoundError,
    OverrideRequest,
    RedactedConfiguration,
)
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.policy import Override
from riglm.domain.schemas.control_api import (
    Bucket,
    Companion,
    CooccurrenceMap,
    ExposedList,
    Health,
    HitRate,
    ListTotals,
    ListWithout,
    Page,
    PredictedTool,
    PriceTotals,
    Readiness,
    RecordTotals,
    Series,
    SessionCall,
    SessionClient,
    SessionClusterEntry,
    SessionClusters,
    SessionDetail,
    SessionEntry,
    SessionPrediction,
    SessionTotals,
    StoreHealth,
    Summary,
    TokenTotals,
    ToolChangeEntry,
    ToolChanges,
    ToolCount,
    ToolDetail,
    ToolEntry,
    ToolPair,
    ToolPairCount,
    ToolTotals,
    UpstreamEntry,
)
from riglm.domain.session import IdentificationConfidence, IdentificationMethod, ProtocolEra, Transport
from riglm.ports.control import ControlPort

SESSION = UUID("01981a00-0000-7000-8000-000000000001")
OVERRIDE = UUID("01981a00-0000-7000-8000-0000000000aa")
NOON = 1_780_000_000.5
SIGNAL: dict[str, Any] = {
    "embeddings": {
        "provider": "fastembed",
        "model": "m",
        "status": "ready",
        "actual_provider": "fastembed",
        "actual_model": "m",
        "dimensions": 384,
        "is_fallback_active": False,
        "semantic_quality": "high",
    },
    "tools": {"indexed": 3, "embedded": 2},
    "learned_pairs": 4,
    "weights": {"lexical": 0.35, "semantic": 0.65},
    "advice": "ask in whole sentences",
}
ENTRY = SessionEntry(
    id=SESSION,
    client=SessionClient(name="editor", version="2"),
    era=ProtocolEra.HANDSHAKE,
    transport=Transport.HTTP,
    method=IdentificationMethod.CONNECTION,
    confidence=IdentificationConfidence.CONNECTION,
    principal="",
    project="",
    profile="default",
    started_at=NOON,
    ended_at=None,
    active=True,
    invocations=2,
    failures=1,
    lists=1,
    list_changes=0,
    searches=0,
    tools_available=3,
)
CHANGE = ToolChangeEntry(
    server="files",
    tool="read",
    change="changed",
    resembles=None,
    digest="b" * 64,
    approved_digest="a" * 64,
    seen_at=NOON,
    diff=["-old", "+new"],
)
TOOL = ToolEntry(tool="docs/read", upstream="docs", invocations=2, uses=2, listed=1, median_ms=1.5, last_used=NOON)


class ScriptedControl(ControlPort):
    """Knows one session, one tool and the overrides that it was given; `error` is raised by every question."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.is_ready = True
        self.made: dict[UUID, Override] = {}
        self.version = 1
        self.document: dict[str, Any] = {"filtering": {"max_tools": 20}, "control": {"token": "***"}}
        self.put: list[tuple[Mapping[str, Any], int | None, bool]] = []
        self.asked: list[dict[str, Any]] = []

    def _answering(self, **asked: Any) -> None:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error

    async def health(self) -> Health:
        self._answering()
        upstream = UpstreamEntry(name="docs", transport="stdio", state="broken", since=NOON, last_error="gone")
        return Health(
            status="ok",
            live=True,
            ready=True,
            version="1",
            started_at=NOON,
            upstreams=(upstream,),
            store=StoreHealth(kind="sqlite", state="ok", queued=0, spooled=0),
            embedder=SIGNAL,
        )

    async def readiness(self) -> Readiness:
        self._answering()
        return Readiness(ready=True) if self.is_ready else Readiness(ready=False, reasons=("the store is away",))

    async def configuration(self) -> RedactedConfiguration:
        self._answering()
        return RedactedConfiguration(version=self.version, document=self.document)

    async def put_configuration(
        self, document: Mapping[str, Any], *, expected_version: int | None = None, persist: bool = False
    ) -> ConfigurationUpdate:
        self._answering()
        if expected_version is not None and expected_version != self.version:
            raise ConflictError("the configuration was changed meanwhile")
        if "wrong" in document:
            raise InvalidInputError(FieldError(path="wrong", detail="there is no such key"))
        self.put.append((document, expected_version, persist))
        self.version += 1
        self.document = {**self.document, **document}
        return ConfigurationUpdate(
            version=self.version, document=self.document, restart=("storage.path",) if persist else ()
        )

    async def sessions(
        self, *, active_only: bool = False, limit: int = 100, cursor: str | None = None
    ) -> Page[SessionEntry]:
        self._answering(active_only=active_only, limit=limit, cursor=cursor)
        if cursor == "nowhere":
            raise NotFoundError("the cursor leads nowhere")
        return Page(items=(ENTRY,), next_cursor="next")

    async def session(self, session_id: UUID) -> SessionDetail:
        self._answering(session_id=session_id)
        if session_id != SESSION:
            raise NotFoundError("there is no such session")
        call = SessionCall(
            sequence=1,
            tool="docs/read",
            upstream="docs",
            at=NOON,
            duration_ms=1.5,
            success=False,
            error_kind=ErrorKind.TOOL,
            found=DiscoveryMethod.LISTED,
        )
        shown = ExposedList(
            at=NOON,
            surface="dynamic",
            mode="enforce",
            predictor="hybrid",
            reason="cold",
            shown=("docs/read",),
            hidden=2,
            tokens_shown=10,
            tokens_hidden=20,
            tokens_meta_tools=5,
        )
        return SessionDetail(**dict(ENTRY), calls=(call,), shown=(shown,))

    async def prediction(self, session_id: UUID) -> SessionPrediction:
        self._answering(session_id=session_id)
        tool = PredictedTool(
            tool="docs/read",
            upstream="docs",
            rank=1,
            score=0.5,
            shown=True,
            visibility="auto",
            why="likely",
            contributions={"frequency": 0.5},
        )
        return SessionPrediction(
            session_id=session_id,
            at=NOON,
            live=True,
            predictor="hybrid",
            surface="dynamic",
            mode="enforce",
            confidence=0.5,
            reason="",
            has_context=False,
            context_confidence=0.0,
            size=1,
            signals=("frequency",),
            tools=(tool,),
            shown=("docs/read",),
            without={"frequency": ListWithout(shown=(), added=(), removed=("docs/read",))},
        )

    async def tools(
        self, *, unused_only: bool = False, since: float = 0.0, limit: int = 100, cursor: str | None = None
    ) -> Page[ToolEntry]:
        self._answering(unused_only=unused_only, since=since, limit=limit, cursor=cursor)
        return Page(items=(TOOL,))

    async def tool(self, name: str, *, since: float = 0.0) -> ToolDetail:
        self._answering(name=name, since=since)
        if name != TOOL.tool:
            raise NotFoundError("there is no such tool")
        companion = Companion(tool="docs/list", count=2, mean_distance=1.5)
        series = Series(buckets=(Bucket(at=NOON, seconds=60.0, calls=2),))
        return ToolDetail(**dict(TOOL), cooccurrences=(companion,), series=series)

    async def tool_changes(self) -> ToolChanges:
        self._answering()
        return ToolChanges(items=[CHANGE])

    async def approve_tool(self, server: str, tool: str, digest: str) -> ToolChangeEntry:
        self._answering(server=server, tool=tool, digest=digest)
        if digest != CHANGE.digest:
            raise ConflictError("the server lists a different definition by now")
        return CHANGE

    async def put_override(self, override_request: OverrideRequest) -> Override:
        self._answering(override_request=override_request)
        made = Override(
            id=OVERRIDE,
            kind=override_request.kind,
            tool=override_request.tool,
            created_at=NOON,
            scope=override_request.scope,
            key=override_request.key,
            expires_at=override_request.expires_at,
            reason=override_request.reason,
        )
        self.made[made.id] = made
        return made

    async def overrides(self, *, limit: int = 100, cursor: str | None = None) -> Page[Override]:
        self._answering(limit=limit, cursor=cursor)
        return Page(items=tuple(self.made.values()))

    async def override(self, override_id: UUID) -> Override:
        self._answering()
        if override_id not in self.made:
            raise NotFoundError("there is no such override")
        return self.made[override_id]

    async def delete_override(self, override_id: UUID) -> None:
        self._answering()
        if self.made.pop(override_id, None) is None:
            raise NotFoundError("there is no such override")

    async def embedder(self) -> Mapping[str, Any]:
        self._answering()
        return SIGNAL

    async def summary(self, *, since: float = 0.0) -> Summary:
        self._answering(since=since)
        return Summary(
            since=since,
            sessions=SessionTotals(active=1, total=2),
            calls=4,
            failures=1,
            price=PriceTotals(mode="enforce", sessions=2, of_no_proxy=0.71, of_host_search=0.93),
            hit_rate=HitRate(hits=3, missed=1, found_by_search=1),
            lists=ListTotals(shown=2, changes=1, mean_shown=5.0, mean_available=20.0),
            tokens=TokenTotals(shown=10, hidden=100, meta_tools=20, resent=30),
            records=RecordTotals(accepted=9, stored=6, queued=1, spooled=1, dropped=1, reasons={"full": 1}),
            tools=ToolTotals(known=3, used=1, never_used=2),
            searches=1,
        )

    async def series(
        self,
        *,
        since: float | None = None,
        until: float | None = None,
        buckets: int = 60,
        sessions_since: float | None = None,
    ) -> tuple[Bucket, ...]:
        self._answering(since=since, until=until, buckets=buckets, sessions_since=sessions_since)
        return (Bucket(at=NOON, seconds=60.0, calls=2, mean_shown=5.0, mean_available=20.0),)

    async def cooccurrence(self, *, limit: int = 30) -> CooccurrenceMap:
        self._answering(limit=limit)
        pair = ToolPair(a="docs/list", b="docs/read", count=2, mean_distance=1.5)
        return CooccurrenceMap(tools=("docs/list", "docs/read"), pairs=(pair,))

    async def session_clusters(self, *, limit: int = 20) -> SessionClusters:
        self._answering(limit=limit)
        kind = SessionClusterEntry(
            sessions=3,
            distinctive=("docs/read",),
            tools=(ToolCount(tool="docs/read", sessions=3),),
            transitions=(ToolPairCount(first="docs/list", second="docs/read", sessions=2),),
            pairs=(ToolPairCount(first="docs/list", second="docs/read", sessions=2),),
        )
        return SessionClusters(sessions=4, total=2, clusters=(kind,))
