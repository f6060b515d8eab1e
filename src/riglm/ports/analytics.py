"""Where recorded usage is kept and asked for."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol, Self, runtime_checkable
from uuid import UUID

from riglm.domain.cooccurrence import MAX_COOCCURRENCE_SESSIONS, Cooccurrence
from riglm.domain.errors import RiglmError
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import DiscoveryMethod, ToolInvocation
from riglm.domain.learning import LearnedPair
from riglm.domain.prediction import Vector
from riglm.domain.retention import ErasureRequest
from riglm.domain.session import DEFAULT_PROFILE, Session
from riglm.domain.session_cost import MAX_SESSIONS
from riglm.domain.token_usage import TokenUsage
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.tool_pin import ToolPin
from riglm.ports.dashboard import DashboardQueriesPort
from riglm.ports.maintenance import ROW_BATCH_SIZE, MaintenancePort
from riglm.ports.prediction_store import OverridesPort, SettingChangesPort, ToolCatalogsPort, ToolPinsPort, WarmSetsPort


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed:
    """The end of a session; `ended_at` is in seconds since the epoch."""

    session_id: UUID
    ended_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedPairsDeleted:
    """Learned pairs that no longer count."""

    ids: tuple[UUID, ...]


Record = (
    Session
    | SessionClosed
    | ToolInvocation
    | Exposure
    | LearnedPair
    | LearnedPairsDeleted
    | StoredToolCatalog
    | ToolPin
    | TokenUsage
)
"""What recording hands over, in the order in which it happened."""


class RecordRejectedError(RiglmError):
    """The store works and cannot hold a record among those given; none of them was stored, and trying again is vain."""


class TrainingCall(NamedTuple):
    """One call in a recorded session; `timestamp` is its start, and `ran` is True if it is a use of its tool.

    `duration_ms` is in milliseconds.
    """

    tool: str
    upstream: str
    found: DiscoveryMethod
    success: bool
    timestamp: float
    ran: bool = True
    duration_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSession:
    """A recorded session with its calls in order, for prediction to learn from again.

    `client` is the name that the client gave itself; `client_id`, `principal` and `project` are keyed hashes. `profile`
    is the one that it began with. `tools_available` are the tools of its last list, or that were hidden from it. Times
    are in seconds since the epoch.
    """

    id: UUID
    started_at: float
    client: str
    client_id: str
    principal: str
    tools_available: tuple[str, ...]
    calls: tuple[TrainingCall, ...]
    profile: str = DEFAULT_PROFILE
    project: str = ""

    @property
    def successes(self) -> tuple[TrainingCall, ...]:
        """The calls that succeeded: those that prediction learns from."""
        return tuple(call for call in self.calls if call.success)


@runtime_checkable
class RecordStorePort(Protocol):
    """Stores what is recorded.

    Methods block; callers keep them off the event loop. Every failure of the store arrives as
    `AnalyticsUnavailableError` with its cause kept; a record that the store cannot hold, as `RecordRejectedError`.
    Records are delivered at least once: storing an invocation or exposure whose id is already stored changes nothing,
    and both may arrive before their session.
    """

    @abstractmethod
    def __enter__(self) -> Self:
        """Open the store, bringing its schema up to date."""

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""

    @abstractmethod
    def record_many(self, records: Sequence[Record]) -> None:
        """Store all records; after a failure all of them are given again.

        A session that is stored already keeps its start and a known end, and takes all else. The end of an unknown
        session changes nothing.
        """


@runtime_checkable
class SessionHistoryPort(Protocol):
    """Gives recorded sessions as wholes, for reports and for prediction to learn from again.

    Methods block; a failure arrives as `AnalyticsUnavailableError`.
    """

    @abstractmethod
    def count_sessions(self, since: float = 0.0) -> tuple[int, int]:
        """How many sessions have no end, and how many started since the given time."""

    @abstractmethod
    def get_earliest_call_time(self) -> float:
        """Return the time of the earliest stored call, in seconds since the epoch; infinity if there is none."""

    @abstractmethod
    def list_exposures(self, *session_ids: UUID) -> Sequence[Exposure]:
        """Return the exposures of sessions, each session's in the order of their time."""

    @abstractmethod
    def list_training_sessions(
        self,
        limit_sessions: int = 1000,
        since: float = 0.0,
        principal: str | None = None,
        profile: str | None = None,
        max_calls: int | None = None,
    ) -> Sequence[TrainingSession]:
        """The latest sessions with a successful call that started since the given time, oldest first, with all uses.

        Of one principal, which may be the empty one, or with None of all; and so for the profile. Uses that failed are
        among the calls. A call is a use if its outcome is one of `USES`; other calls may name tools that do not exist.
        Calls of meta-tools (`OWN_UPSTREAM`) are not uses: they show how a tool was found, not which was needed. With
        `max_calls` the latest sessions whose calls together do not exceed it, and always one session.
        """

    @abstractmethod
    def list_proxied_sessions(
        self, limit: int, since: float = 0.0, profile: str | None = None, max_calls: int | None = None
    ) -> Sequence[TrainingSession]:
        """The latest sessions that riglm proxied and that started since the given time, oldest first, with all calls.

        All but those imported from transcripts; calls are of any tool and outcome, those of meta-tools too. `max_calls`
        is as in `list_training_sessions`.
        """

    @abstractmethod
    def list_token_usage(self, limit: int = MAX_SESSIONS) -> Sequence[TokenUsage]:
        """Return the token usage of the latest sessions in transcripts, newest first; an archive has none."""


@runtime_checkable
class ArchivePort(RecordStorePort, SessionHistoryPort, Protocol):
    """Stores sessions, calls and lists a second time, for longer, and answers questions about them."""

    @abstractmethod
    def erase(self, request: ErasureRequest, erased: Sequence[UUID], client_hash: Callable[[str], str]) -> int:
        """Remove the sessions of a subject that this installation sent, and those with an id in `erased`.

        Their records that arrive later are left out. `client_hash` returns the keyed hash of a client's name.

        Returns:
            The number of sessions of the subject that were stored.
        """


class AnalyticsPort(
    RecordStorePort,
    OverridesPort,
    SettingChangesPort,
    SessionHistoryPort,
    DashboardQueriesPort,
    WarmSetsPort,
    ToolCatalogsPort,
    ToolPinsPort,
    MaintenancePort,
    Protocol,
):
    """Persists usage data and answers questions about it.

    `create_session`, `close_session` and `log_invocation` store one record each; recording stores batches by
    `record_many`. Of a learned pair or tool catalog that is stored twice the one that was updated last is kept, and of
    the token usage of a session the one with more requests. What is stored and what is returned share nothing that can
    change.
    """

    def create_session(self, session: Session) -> None:
        """Store a session, or what became known of one that is stored."""
        self.record_many([session])

    def close_session(self, session_id: UUID, ended_at: float) -> None:
        """Store the end of a session, in seconds since the epoch."""
        self.record_many([SessionClosed(session_id=session_id, ended_at=ended_at)])

    def log_invocation(self, invocation: ToolInvocation) -> None:
        """Store a tool call that ended; its session may be stored later."""
        self.record_many([invocation])

    @abstractmethod
    def get_cooccurrences(self, tools: Sequence[str]) -> Sequence[Cooccurrence]:
        """Return the pairs that contain any of the tools, most frequent first, then by name."""

    @abstractmethod
    def get_tool_frequencies(self, since: float = 0.0) -> Mapping[str, int]:
        """Return the number of uses of each upstream tool since a time, in seconds since the epoch.

        A call is a use if its outcome is one of `USES`. Calls of meta-tools are not counted.
        """

    @abstractmethod
    def maintenance_lease(self) -> AbstractContextManager[bool]:
        """Hold the maintenance lease while the block runs; yields False if another process holds it.

        It never waits for another holder, and the death of a holder frees it. A lease of a server whose connection
        breaks is lost without a word: take it for one round at a time, and do what may be done twice.
        """

    @abstractmethod
    def record_many(self, records: Sequence[Record]) -> None:
        """Store all records in one transaction, or none of them. Ends of sessions count after all else."""

    @abstractmethod
    def get_context_vectors(self, session_ids: Sequence[UUID]) -> Mapping[UUID, Vector]:
        """Return the mean vector of the learned pairs of each session that has some; of the most frequent model."""

    @abstractmethod
    def end_idle_sessions(self, before: float) -> int:
        """End every open session that started, called and was shown nothing since `before`, and give their number.

        It ended with the start of its last call or its last exposure; a later `SessionClosed` replaces it.
        """

    @abstractmethod
    def refresh_cooccurrences(self, now: float, most_sessions: int = MAX_COOCCURRENCE_SESSIONS) -> int:
        """Recompute co-occurrence from the successful calls in the latest `most_sessions`; the number of pairs.

        Of each session the first `MAX_TOOLS_PER_SESSION` distinct tools form pairs, without meta-tools. A pair
        that did not change may keep the time at which it was last updated.
        """

    @abstractmethod
    def get_refresh_time(self) -> float:
        """When co-occurrence was computed last, in seconds since the epoch; 0 when it never was or has no pairs."""

    @abstractmethod
    def list_known_tools(self) -> Collection[str]:
        """Return the tools of upstream servers that any recorded list had or hid, or that ran."""

    @abstractmethod
    def list_learned_pairs(self, model: str, limit: int = 5000) -> Sequence[LearnedPair]:
        """The learned pairs of one model, newest first, then the most confident."""

    @abstractmethod
    def prune_learned_pairs(self, most: int, at_once: int = ROW_BATCH_SIZE) -> Iterator[int]:
        """Delete all learned pairs but the `most` newest, of any model, about `at_once` in each step.

        Gives the number that each step forgot; there is no step when there are no more pairs than that.
        """
