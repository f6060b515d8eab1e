"""Requests and responses of the control API.

Times are in seconds since the epoch here, and RFC 3339 in JSON. Durations are in the unit that the name says.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    computed_field,
    field_validator,
)

from riglm.domain.exposure import Mode
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.policy import OverrideKind, OverrideScope
from riglm.domain.session import IdentificationConfidence, IdentificationMethod, ProtocolEra, Transport
from riglm.domain.upstream import LinkState, TransportKind

LATEST: Final = 253_402_300_799
"""The last second that RFC 3339 can represent, since the epoch."""

MAX_CALLS_PER_SESSION_DETAIL: Final = 200
"""Maximum number of calls returned of one session, the latest."""

MAX_LISTS_PER_SESSION_DETAIL: Final = 50
"""Maximum number of lists returned of one session, the latest."""

MAX_BUCKETS: Final = 1_000
"""Maximum number of buckets of a series."""

Item = TypeVar("Item")


def format_time(seconds: float) -> str:
    """Return a time in seconds since the epoch as RFC 3339 in UTC."""
    at = datetime.fromtimestamp(min(max(seconds, 0.0), LATEST), UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


Time = Annotated[
    float, PlainSerializer(format_time, return_type=str), WithJsonSchema({"type": "string", "format": "date-time"})
]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE_TIME: Final = {"type": "string", "format": "date-time"}
_TIME_SCHEMA: Final = WithJsonSchema({"anyOf": [_DATE_TIME, {"type": "number", "minimum": 0, "maximum": LATEST}]})
_HOW_TO_WRITE_TIMES: Final = f"write it as 2026-01-31T12:00:00Z, or in seconds since the epoch, at most {LATEST}"


def parse_time(value: object) -> float:
    """Return seconds since the epoch from a time in RFC 3339, or from such seconds; earlier times are 0.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value.upper())
        except ValueError:
            raise ValueError(_HOW_TO_WRITE_TIMES) from None
        if at.tzinfo is None:
            raise ValueError(_HOW_TO_WRITE_TIMES)
        return min(max((at - _EPOCH).total_seconds(), 0.0), float(LATEST))
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATEST:
        raise ValueError(_HOW_TO_WRITE_TIMES)
    return float(value)


def _parse_parameter(value: object) -> float:
    try:
        return parse_time(float(str(value)))
    except ValueError:
        return parse_time(value)


TimeMember = Annotated[float, BeforeValidator(parse_time), _TIME_SCHEMA]
"""A time in a request body."""

TimeParameter = Annotated[float, BeforeValidator(_parse_parameter), _TIME_SCHEMA]
"""A time in a query, in which numbers are text."""

PRINTABLE: Final = r"^[^\x00-\x1f\x7f-\x9f]+$"
"""The pattern of text without control characters, which no name of a tool contains."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True, defer_build=True)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Page(_Model, Generic[Item]):
    """A part of a list."""

    items: tuple[Item, ...]
    next_cursor: str | None = Field(default=None, description="Requests what follows; null at the end.")


class SessionClient(_Model):
    """The client's name and version as it sent them."""

    name: str
    version: str


class SessionEntry(_Model):
    """One piece of work by one client."""

    id: UUID
    client: SessionClient
    era: ProtocolEra
    transport: Transport
    method: IdentificationMethod = Field(description="How it was recognized.")
    confidence: IdentificationConfidence
    principal: str = Field(description="A keyed hash of the caller; empty for callers without a name.")
    project: str = Field(description="A keyed hash of the project that the client works in; empty if it is unknown.")
    profile: str
    started_at: Time
    ended_at: Time | None
    active: bool = Field(description="True while it may still grow.")
    invocations: int = Field(description="All calls, including those of meta-tools, which the summary leaves out.")
    failures: int = Field(description="Of all those calls.")
    lists: int
    list_changes: int
    searches: int
    tools_available: int


class SessionCall(_Model):
    """One call."""

    sequence: int = Field(validation_alias="sequence_number")
    tool: str
    upstream: str
    at: Time = Field(validation_alias="timestamp")
    duration_ms: float
    success: bool
    error_kind: ErrorKind | None
    found: DiscoveryMethod = Field(description="How the client found the tool.")


class ExposedList(_Model):
    """One list, or one answer to a search or a context."""

    at: Time = Field(validation_alias="timestamp")
    surface: str
    mode: Mode
    predictor: str
    reason: str
    shown: tuple[str, ...]
    hidden: Annotated[int, BeforeValidator(len)]
    tokens_shown: int
    tokens_hidden: int
    tokens_meta_tools: int = Field(validation_alias="tokens_own")


class SessionDetail(SessionEntry):
    """A session with its latest calls and lists, each oldest first."""

    calls: tuple[SessionCall, ...] = Field(description=f"The latest {MAX_CALLS_PER_SESSION_DETAIL}.")
    shown: tuple[ExposedList, ...] = Field(description=f"The latest {MAX_LISTS_PER_SESSION_DETAIL}.")


class PredictedTool(_Model):
    """One tool in a session's list, and why it is listed or hidden."""

    tool: str
    upstream: str
    rank: int | None = Field(description="From 1 on, among the tools that can be listed; null for the others.")
    score: float | None = Field(description="How likely the rest of the session needs it; null without a prediction.")
    shown: bool = Field(description="True if it is in the list, or would be in mode `shadow`.")
    visibility: Literal["auto", "always", "never", "denied"]
    why: str
    contributions: Mapping[str, float] = Field(
        default={}, description="By signal; they add up to log(score / (1 - score))."
    )


class ListWithout(_Model):
    """The list that would be selected now without one signal, compared to one selected now with it.

    Tools that a session's list holds because they were selected or used before in the same context are not in it. A
    list that prediction does not select is the same without any signal.
    """

    shown: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]


class SessionPrediction(_Model):
    """What a session's next list would be, and why."""

    session_id: UUID
    at: Time
    live: bool = Field(description="False if the session's state was rebuilt from records.")
    predictor: str
    surface: str
    mode: Mode = Field(
        description="In mode `shadow` the client gets every tool; `size`, `shown`, `without` and `tools` describe what "
        "it would get if filtering were enforced."
    )
    confidence: float = Field(ge=0, le=1)
    reason: str
    has_context: bool
    context_confidence: float = Field(ge=0, le=1)
    size: int = Field(description="Number of tools in the list.")
    signals: tuple[str, ...]
    tools: tuple[PredictedTool, ...] = Field(description="Every tool, first those that can be listed, likeliest first.")
    shown: tuple[str, ...] = Field(description="The tools in the list; in mode `shadow`, those that would be in it.")
    without: Mapping[str, ListWithout] = Field(description="By signal: the list that would be selected without it.")


class ToolEntry(_Model):
    """How one tool was used. Figures of calls are null for a tool that was never called."""

    tool: str
    upstream: str
    invocations: int = 0
    uses: int = Field(default=0, description="The invocations in which it ran, with or without an error of the tool.")
    failures: int = 0
    sessions: int = 0
    listed: int = Field(default=0, description="The invocations while it was in the session's list.")
    searched: int = 0
    median_ms: float | None = None
    p95_ms: float | None = None
    last_used: Time | None = None

    @computed_field(description="The invocations by a name that was in no list of the session.")  # type: ignore[prop-decorator]
    @property
    def named(self) -> int:
        """The invocations by a name that was in no list of the session."""
        return self.invocations - self.listed - self.searched


class Companion(_Model):
    """A tool that was used in the same sessions."""

    tool: str
    count: int
    mean_distance: float = Field(description="Average distance in calls.")


class Bucket(_Model):
    """What happened in a span of time. Means are over its lists, and null without any.

    `listed`, `searched` and `named` count the calls by how the client discovered their tools. In mode `shadow`, where
    it got every tool, lists are those that would have been shown.
    """

    at: Time
    seconds: float
    calls: int = 0
    failures: int = 0
    listed: int = 0
    searched: int = 0
    named: int = 0
    lists: int = 0
    mean_shown: float | None = None
    mean_available: float | None = None


class Series(_Model):
    """What happened over time, oldest first."""

    buckets: tuple[Bucket, ...]


class ToolDetail(ToolEntry):
    """A tool with its companions and its calls over time; the lists of the series are all lists."""

    description: str | None = Field(
        default=None, description="As its server lists it; null if it was not listed since the process started."
    )
    cooccurrences: tuple[Companion, ...]
    series: Series


class ToolPair(_Model):
    """Two tools that were used in the same sessions."""

    a: str = Field(validation_alias="tool_a")
    b: str = Field(validation_alias="tool_b")
    count: int
    mean_distance: float = Field(validation_alias="average_distance", description="Average distance in calls.")


class CooccurrenceMap(_Model):
    """The tools that are used together most, and the pairs among them."""

    tools: tuple[str, ...]
    pairs: tuple[ToolPair, ...]


class ToolCount(_Model):
    """A tool, and the number of sessions that used it."""

    tool: str
    sessions: int


class ToolPairCount(_Model):
    """Two tools, and the number of sessions in which the second directly followed the first, or that used both."""

    first: str
    second: str
    sessions: int


class SessionClusterEntry(_Model):
    """A kind of work: sessions that use similar servers and tools in similar contexts."""

    sessions: int
    distinctive: tuple[str, ...] = Field(description="The tools that name it, the most distinctive first.")
    tools: tuple[ToolCount, ...] = Field(description="The most used ones, up to 20.")
    transitions: tuple[ToolPairCount, ...] = Field(description="The most frequent ones, up to 10.")
    pairs: tuple[ToolPairCount, ...] = Field(description="Tools of the same sessions, in any order; up to 10.")


class SessionClusters(_Model):
    """The kinds of work of the latest sessions, the most frequent first."""

    sessions: int = Field(description="Sessions with successful calls that were clustered, up to 2,000.")
    total: int = Field(description="Number of clusters.")
    clusters: tuple[SessionClusterEntry, ...]


class SessionTotals(_Model):
    """How many sessions there are."""

    active: int
    total: int = Field(description="The sessions that all figures are of.")
    in_time: int = Field(default=0, description="All sessions that started since the time, imported ones too.")
    stored: int = Field(default=0, description="All sessions in the store.")


class PriceTotals(_Model):
    """What the model requests of sessions cost that used a tool after a list."""

    mode: Mode = Field(description="`shadow`: nothing was hidden; the prices are of the lists that would be sent.")
    sessions: int
    of_no_proxy: float | None = Field(
        description="Relative to no proxy; null with fewer than two sessions. With preload hints, relative to the "
        "client's tool search, which defers all tools without a proxy."
    )
    of_host_search: float | None = Field(
        description="Relative to the tool search of a host; null with fewer than two sessions."
    )


VerdictCode = Literal["empty", "too_early", "nothing_hidden", "costs_more", "unsure", "worth_it"]


class VerdictCheckModel(_Model):
    """One thing that must hold."""

    name: Literal["sessions", "hidden", "price"]
    met: bool | None = Field(description="Null while that is not known.")
    text: str


class VerdictModel(_Model):
    """Whether filtering is worth it, as in `riglm report`; the first check that is not met decides."""

    code: VerdictCode
    text: str
    reasons: tuple[VerdictCheckModel, ...]


class HitRate(_Model):
    """The uses of tools while a list hid something; in mode `shadow`, as if the list had been shown."""

    hits: int = Field(description="The tool was in the list, or riglm had suggested it.")
    missed: int = Field(description="The tool was not in the list.")
    found_by_search: int = Field(description="Those of `missed` whose tool a search of riglm had found.")

    @computed_field(description="The share of hits; null without uses.")  # type: ignore[prop-decorator]
    @property
    def rate(self) -> float | None:
        """The share of hits."""
        uses = self.hits + self.missed
        return self.hits / uses if uses else None


class ListTotals(_Model):
    """The lists in numbers; in mode `shadow`, those that would be shown."""

    shown: int
    changes: int
    hinted: int = Field(default=0, description="Those with preload hints: nothing is hidden from their clients.")
    mean_shown: float | None
    mean_available: float | None

    @computed_field(description="The share of the tools that lists left out; null without lists.")  # type: ignore[prop-decorator]
    @property
    def reduction(self) -> float | None:
        """The share of the available tools that lists left out."""
        if self.mean_shown is None or not self.mean_available:
            return None
        return 1.0 - self.mean_shown / self.mean_available


class TokenTotals(_Model):
    """Estimated tokens of lists and of the results of meta-tools."""

    mode: Mode = Field(default="off", description="`shadow`: nothing was hidden; what filtering would have come to.")
    shown: int = 0
    hidden: int = 0
    meta_tools: int = Field(default=0, description="Of meta-tools, in lists and in their results.")
    resent: int = Field(default=0, description="Sent again because a list changed.")

    @computed_field(description="What was saved, minus what it cost.")  # type: ignore[prop-decorator]
    @property
    def net(self) -> int:
        """What was saved, minus what it cost."""
        return self.hidden - self.meta_tools - self.resent


class RecordTotals(_Model):
    """What became of this process's records: accepted = stored + queued + spooled + dropped."""

    accepted: int
    stored: int
    queued: int
    spooled: int
    dropped: int
    reasons: Mapping[str, int] = Field(description="Why some were dropped.")


class ToolTotals(_Model):
    """How many tools there are."""

    known: int = Field(description="Of servers: those that were listed or ran, without meta-tools.")
    used: int
    never_used: int


class Summary(_Model):
    """All figures of the latest 1,000 sessions that riglm proxied and that started since a time.

    Sessions before the latest ones with 50,000 calls are left out. Tools are those of all sessions since the time, and
    records those since this process started.
    """

    since: Time
    mode: Mode = Field(
        default="off",
        description="That of the latest list, which prices, the hit rate, lists and tokens are of; in mode `shadow` "
        "they are estimates of what filtering would do. `off` without lists of filtering.",
    )
    verdict: VerdictModel
    sessions: SessionTotals
    calls: int = Field(description="Of servers' tools; those of meta-tools are left out, here and in the series.")
    failures: int = Field(description="Of those calls.")
    price: PriceTotals
    hit_rate: HitRate
    lists: ListTotals
    tokens: TokenTotals
    records: RecordTotals
    tools: ToolTotals
    searches: int


class UpstreamEntry(_Model):
    """One upstream server."""

    name: str
    transport: TransportKind
    state: LinkState
    since: Time | None = None
    last_error: str | None = None
    tools: int | None = Field(default=None, description="Number of tools in its last list; null before the first.")


class StoreHealth(_Model):
    """The store, and how many records wait for it in memory and on disk."""

    kind: str
    state: Literal["ok", "unavailable"]
    queued: int
    spooled: int


class Embeddings(_Model):
    """The embedder in use, next to the configured one."""

    provider: str
    model: str
    status: Literal["not_loaded", "loading", "ready", "unavailable"]
    actual_provider: str
    actual_model: str
    dimensions: int
    is_fallback_active: bool
    semantic_quality: Literal["high", "low", "none"]


class IndexedTools(_Model):
    """How many tools can be found by their words, and how many by their meaning."""

    indexed: int
    embedded: int


class SearchWeights(_Model):
    """The weights of words and meaning in a search."""

    lexical: float
    semantic: float


class EmbedderSignal(_Model):
    """What `index_status` reports to clients."""

    embeddings: Embeddings
    tools: IndexedTools
    learned_pairs: int
    weights: SearchWeights
    advice: str


class Readiness(_Model):
    """True if clients can be served correctly; the reasons if not."""

    ready: bool
    reasons: tuple[str, ...] = Field(default=(), description="Why not.")


class Health(_Model):
    """The state of riglm."""

    status: Literal["ok", "degraded"]
    live: bool
    ready: bool
    version: str
    started_at: Time
    upstreams: tuple[UpstreamEntry, ...]
    store: StoreHealth
    embedder: EmbedderSignal


_TextOrNull = Annotated[str | None, BeforeValidator(lambda text: text or None)]


class ToolChangeEntry(_Model):
    """A tool that is not as it was approved; `digest` is of the definition that was listed last."""

    server: str
    tool: str = Field(validation_alias="name")
    change: Literal["changed", "added"] | None = Field(description="None once it is approved.")
    resembles: _TextOrNull
    digest: str = Field(validation_alias="seen_digest")
    approved_digest: _TextOrNull = Field(validation_alias="digest")
    seen_at: Time
    diff: list[str] = Field(description="Lines of a unified diff from the approved definition, in printable ASCII.")


class ToolChanges(_Model):
    """The tools that are not as they were approved."""

    items: list[ToolChangeEntry]


class OverrideEntry(_Model):
    """A manual decision about one tool."""

    id: UUID
    kind: OverrideKind
    tool: str
    scope: OverrideScope
    key: str
    created_at: Time
    expires_at: Time | None
    reason: str


class ToolApproval(_Body):
    """A tool to approve, with the digest of the definition that was looked at."""

    server: str = Field(min_length=1, max_length=256, pattern=PRINTABLE)
    tool: str = Field(min_length=1, pattern=r"^[^\x00]+$", description="The server's own name for it.")
    digest: str = Field(pattern=r"^[0-9a-f]{64}$")


class OverrideCreate(_Body):
    """A requested override."""

    kind: Annotated[OverrideKind, Field(strict=False)] = Field(
        description="`include` shows the tool and lifts a denial, unless it is for one session; `exclude` hides it; "
        "`pin` keeps it in every list, at its place in the catalog's order, and lifts nothing."
    )
    tool: str = Field(min_length=1, max_length=256, pattern=PRINTABLE, description="As clients see it.")
    scope: Annotated[OverrideScope, Field(strict=False)] = Field(
        default=OverrideScope.ALL, description="For all sessions, for one, or for all of one caller."
    )
    key: str = Field(
        default="",
        pattern=r"^[0-9a-fA-F-]{0,64}$",
        validate_default=True,
        description="For one session its id; for a caller its keyed hash, as sessions have it, which is empty for "
        "callers without a name; else empty.",
    )
    expires_at: TimeMember | None = Field(default=None, description="When it ends; null: when it is deleted.")
    expires_in: float | None = Field(
        default=None, gt=0, le=31_536_000, description="Seconds until it ends. Of both ends the earlier counts."
    )
    reason: str = Field(default="", max_length=500, pattern=r"^[^\x00]*$", description="For people.")

    @field_validator("key")
    @classmethod
    def _fits_scope(cls, key: str, info: ValidationInfo) -> str:
        scope = info.data.get("scope")
        if scope is OverrideScope.SESSION:
            return str(UUID(key))
        if scope is OverrideScope.ALL and key:
            raise ValueError("an override for all sessions has no key")
        return key
