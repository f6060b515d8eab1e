"""What the control API returns of a running riglm, and accepts.

Times are in seconds since the epoch, durations in the unit that the name says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar
from uuid import UUID

from riglm.domain.errors import RiglmError
from riglm.domain.exposure import Exposure, Mode
from riglm.domain.invocation import ErrorKind, Found
from riglm.domain.policy import OverrideKind, OverrideScope
from riglm.domain.session import Client, Confidence, Era, Method, Transport
from riglm.domain.upstream import Kind

MOST_CALLS_TOLD: Final = 200
"""Maximum number of calls returned of one session, the latest."""

MOST_LISTS_TOLD: Final = 50
"""Maximum number of lists returned of one session, the latest."""

MOST_BUCKETS: Final = 1_000
"""Maximum number of buckets of a series."""

Item = TypeVar("Item")


class ControlError(RiglmError):
    """What was asked of the control API cannot be had or done; nothing was changed."""


class NotThere(ControlError):
    """There is no session, tool or override of this name."""


class Forbidden(ControlError):
    """This cannot be changed while riglm runs."""


class Conflict(ControlError):
    """The request is based on an outdated state, or on one in which it cannot be done."""


class ControlUnavailable(ControlError):
    """The answer was not ready in time, or the store is unavailable; retrying later may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One invalid part of a request: `path` names the part, `detail` the problem and the fix."""

    path: str
    detail: str


class Invalid(ControlError):
    """What was given is not usable."""

    def __init__(self, *faults: Fault) -> None:
        """`faults` are all that were found, one at least."""
        super().__init__("; ".join(f"{fault.path}: {fault.detail}" for fault in faults))
        self.faults: Final = faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """A part of a list; `next_cursor` asks for what follows, and is None at the end."""

    items: tuple[Item, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntry:
    """A session as it is listed.

    It is `active` while it may still grow. `invocations` are all calls, those of meta-tools too. `principal` is
    a keyed hash, `tools_available` a number.
    """

    id: UUID
    client: Client
    era: Era
    transport: Transport
    method: Method
    confidence: Confidence
    principal: str
    started_at: float
    ended_at: float | None
    active: bool
    invocations: int
    failures: int
    lists: int
    list_changes: int
    searches: int
    tools_available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCall:
    """One call of a session."""

    sequence: int
    tool: str
    upstream: str
    at: float
    duration_ms: float
    success: bool
    error_kind: ErrorKind | None
    found: Found


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDetail:
    """A session with its latest calls and lists, each oldest first."""

    session: SessionEntry
    calls: tuple[SessionCall, ...]
    shown: tuple[Exposure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTool:
    """What becomes of one tool in a session's list, and why, in words.

    `score` is None where nothing was predicted, `rank` counts from 1 among the tools that can be shown and is None for
    the others. `contributions` are by signal and add up to the score.
    """

    tool: str
    upstream: str
    rank: int | None
    score: float | None
    shown: bool
    standing: Literal["open", "kept", "away", "denied"]
    why: str
    contributions: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWithout:
    """The list that would be chosen now if one signal were silent, and how it differs from one chosen now with it.

    What a session's list holds because it was chosen or used before in the same context is not in it. A list that
    prediction does not choose is the same without any signal.
    """

    shown: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPrediction:
    """What a session's next list would be, and why.

    `live` is True if the state is that of the running session; otherwise it was rebuilt from records.
    In the mode `shadow` the client gets all tools, and `shown` has those it would get. `size` is the number of tools in
    the list. `confidence` is that of the selection and `context_confidence` that of the context, both between 0 and 1.
    `tools` has every tool of the catalog: first those that can be shown, the likeliest first. `without` has the
    selection without each signal.
    """

    session_id: UUID
    at: float
    live: bool
    predictor: str
    surface: str
    mode: Mode
    confidence: float
    reason: str
    has_context: bool
    context_confidence: float
    size: int
    signals: tuple[str, ...]
    tools: tuple[PredictedTool, ...]
    shown: tuple[str, ...]
    without: Mapping[str, ListWithout]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEntry:
    """How one tool was used.

    `uses` are the invocations in which it ran, with or without an error of the tool. `listed`, `searched` and `named`
    count the invocations by how the tool was found. Figures of calls are None for a tool that was never called.
    """

    tool: str
    upstream: str
    invocations: int = 0
    uses: int = 0
    failures: int = 0
    sessions: int = 0
    listed: int = 0
    searched: int = 0
    named: int = 0
    median_ms: float | None = None
    p95_ms: float | None = None
    last_used: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """A tool used in the same sessions as another one: the number of sessions, and the average distance in calls."""

    tool: str
    count: int
    mean_distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What happened in `seconds` seconds from `at` on.

    Calls are those of servers' tools. `listed`, `searched` and `named` count how the tools of those were found that are
    uses. Means are over the lists that were shown in that time, and None when there was none.
    """

    at: float
    seconds: float
    calls: int = 0
    failures: int = 0
    listed: int = 0
    searched: int = 0
    named: int = 0
    lists: int = 0
    mean_shown: float | None = None
    mean_available: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDetail:
    """One tool, with its company and its calls over time; the lists of `series` are all lists."""

    tool: ToolEntry
    cooccurrences: tuple[Companion, ...]
    series: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPair:
    """Two tools that were used in the same sessions."""

    a: str
    b: str
    count: int
    mean_distance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CooccurrenceMap:
    """The tools that are used together most, and the pairs among them."""

    tools: tuple[str, ...]
    pairs: tuple[ToolPair, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTotals:
    """How many sessions there are."""

    active: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroHop:
    """How tools were found while a list hid something: in the list, by a search, or by a name that was in no list.

    `rate` is the share that was in the list, None without uses.
    """

    hits: int
    searched: int
    missed: int

    @property
    def rate(self) -> float | None:
        """The share of hits."""
        uses = self.hits + self.searched + self.missed
        return self.hits / uses if uses else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTotals:
    """What the model requests of the latest sessions cost, relative to no proxy and to the tool search of a host.

    `mode` is `shadow` if nothing was hidden and the prices are those of the lists that would have been shown. Prices
    are None without sessions.
    """

    mode: Mode
    sessions: int
    of_no_proxy: float | None
    of_host_search: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTotals:
    """What the lists came to; `reduction` is the share of the tools that they left out, None without lists."""

    shown: int
    changes: int
    mean_shown: float | None
    mean_available: float | None

    @property
    def reduction(self) -> float | None:
        """The share of the tools available that lists leave out."""
        if self.mean_shown is None or not self.mean_available:
            return None
        return 1.0 - self.mean_shown / self.mean_available


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTotals:
    """Estimated tokens of lists: shown, hidden, of meta-tools, and sent again because a list changed."""

    shown: int
    hidden: int
    own: int
    resent: int

    @property
    def net(self) -> int:
        """What was saved, less what it cost."""
        return self.hidden - self.own - self.resent


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTotals:
    """What became of the records of this process; `reasons` counts the dropped ones by reason."""

    accepted: int
    stored: int
    queued: int
    spooled: int
    dropped: int
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTotals:
    """How many tools there are, and how many of them were ever used."""

    known: int
    used: int
    never_used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All at a glance, since the given time; `records` count since this process started."""

    since: float
    sessions: SessionTotals
    calls: int
    failures: int
    price: PriceTotals
    zero_hop: ZeroHop
    lists: ListTotals
    tokens: TokenTotals
    records: RecordTotals
    tools: ToolTotals
    searches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamEntry:
    """One server: how it is reached and whether it is. `tools` is how many it listed last, None before it did."""

    name: str
    transport: Kind
    state: Literal["idle", "opening", "open", "broken"]
    since: float | None = None
    last_error: str | None = None
    tools: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHealth:
    """The store, and how many records wait for it in memory and on disk."""

    kind: str
    state: Literal["ok", "away"]
    queued: int
    spooled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether clients can be served correctly; `reasons` has the reasons if not."""

    ready: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How riglm is. `embedder` is the capability signal."""

    status: Literal["ok", "degraded"]
    live: bool
    ready: bool
    version: str
    started_at: float
    upstreams: tuple[UpstreamEntry, ...]
    store: StoreHealth
    embedder: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideWish:
    """A requested override; at most one of `expires_at` and `expires_in` (seconds) is given."""

    kind: OverrideKind
    tool: str
    scope: OverrideScope = OverrideScope.ALL
    key: str = ""
    expires_at: float | None = None
    expires_in: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationShown:
    """The configuration in force, with masks in the place of secrets.

    `version` grows with every change, and differs in every process.
    """

    version: int
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationChanged:
    """The version that a change made, and the configuration as it left it, with masks in the place of secrets.

    `restart` names the keys that were written and count from the next start.
    """

    version: int
    document: Mapping[str, Any]
    restart: tuple[str, ...] = ()
