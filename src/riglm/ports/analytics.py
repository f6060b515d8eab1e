"""The store: recorded usage, overrides, changed settings, warm sets, tool catalogs and tool pins, and maintenance."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, Self, runtime_checkable
from uuid import UUID

from riglm.domain.cooccurrence import MAX_COOCCURRENCE_SESSIONS, Cooccurrence
from riglm.domain.errors import RiglmError
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import DiscoveryMethod, ToolInvocation
from riglm.domain.learning import MAX_USAGE_SESSIONS, LearnedPair, SessionUse, WarmSet, WarmSetKey
from riglm.domain.policy import Override
from riglm.domain.prediction import Vector
from riglm.domain.retention import ErasureRequest, Expiry, RemovedCounts
from riglm.domain.session import DEFAULT_PROFILE, Session
from riglm.domain.session_cost import MAX_SESSIONS, TokenUsage
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.tool_pin import ToolPin


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

    def __enter__(self) -> Self:
        """Open the store, bringing its schema up to date."""

    def __exit__(self, *_: object) -> None:
        """Close the store."""

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

    def count_sessions(self, since: float = 0.0) -> tuple[int, int]:
        """How many sessions have no end, and how many started since the given time."""

    def get_earliest_call_time(self) -> float:
        """Return the time of the earliest stored call, in seconds since the epoch; infinity if there is none."""

    def list_exposures(self, *session_ids: UUID) -> Sequence[Exposure]:
        """Return the exposures of sessions, each session's in the order of their time."""

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

    def list_proxied_sessions(
        self, limit: int, since: float = 0.0, profile: str | None = None, max_calls: int | None = None
    ) -> Sequence[TrainingSession]:
        """The latest sessions that riglm proxied and that started since the given time, oldest first, with all calls.

        All but those imported from transcripts; calls are of any tool and outcome, those of meta-tools too. `max_calls`
        is as in `list_training_sessions`.
        """

    def list_token_usage(self, limit: int = MAX_SESSIONS) -> Sequence[TokenUsage]:
        """Return the token usage of the latest sessions in transcripts, newest first; an archive has none."""


ROW_BATCH_SIZE: Final = 250
"""Rows that are removed in one step: writers wait for the end of a step, and it ends within a few milliseconds."""

ExportRow = Mapping[str, Any]
"""A record as plain values: text, numbers, truth values, lists and objects of them, and None."""


class RecordKind(StrEnum):
    """The kinds of records that can be exported, each in a separate table."""

    SESSIONS = "sessions"
    INVOCATIONS = "invocations"
    EXPOSURES = "exposures"
    COOCCURRENCES = "cooccurrences"
    LEARNED_PAIRS = "learned_pairs"
    OVERRIDES = "overrides"
    WARM_SETS = "warm_sets"


@runtime_checkable
class ExportPort(Protocol):
    """Hands out all that is stored."""

    def count_rows(self, kind: RecordKind, since: float = 0.0) -> int:
        """How many records of this kind there are from the given time on."""

    def export(self, kind: RecordKind, since: float = 0.0, at_once: int = 1000) -> Iterator[Sequence[ExportRow]]:
        """All records of this kind from the given time on, oldest first, at most `at_once` together.

        Ids are text, times are seconds since the epoch, hashes are as they are stored. Nothing is held between two
        parts: what is recorded meanwhile may be among them or not, and nothing comes twice.
        """


@runtime_checkable
class MaintenancePort(ExportPort, Protocol):
    """Purge, erase, export, compact. Methods block; a failure of the store arrives as `AnalyticsUnavailableError`."""

    def get_reliable_time(self, now: float, since: float) -> float:
        """Return `now` if it is at most two days after the known time, else the known time: the two-days rule.

        The known time is the later of the noted time and the newest record that is at least a day older than `now`.
        Younger ones prove nothing: a clock that jumped may have stamped them. If no time was noted yet, it is the
        newest record before `since`, when this process started. Times after `now` do not count.

        So a clock that jumped ahead is reliable once it has shown two days, and until then age is measured at a time
        before the jump. With one short run a week, what was too old at the run before is removed.
        """

    def note_time(self, at: float, now: float) -> None:
        """Note a time that was reliable at `now`, for `get_reliable_time` of this process and of later ones.

        A first or an earlier time is not noted if a record is more than a day later than `now`: the clock may be
        behind.
        """

    def count_expired(self, expiry: Expiry) -> RemovedCounts:
        """How many records are too old; nothing is removed. Lists of tools are not counted."""

    def purge(self, expiry: Expiry, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        """Remove what is too old, about `at_once` rows in each step.

        A step is one short transaction, done when its count is requested; the caller sets the pace. It may be given
        up after any step.
        """

    def count_erasable(self, forgotten: ErasureRequest) -> RemovedCounts:
        """Return the number of records of a subject, for kinds that are stored by session; nothing is deleted."""

    def erase(self, forgotten: ErasureRequest, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        """Erase a subject, in steps as in `purge`; the first one notes who was erased.

        From then on `record_many` drops their records, from any process and however late. Learned
        pairs go that only they taught, though the sessions may be purged in which they did, overrides made for them,
        and the warm sets of a principal. What is given up half-way is finished by `finish_erasures`.
        """

    def finish_erasures(self, at_once: int = ROW_BATCH_SIZE) -> Iterator[RemovedCounts]:
        """Remove what is left of all who were forgotten, in steps as in `purge`; notes older than a year go too."""

    def list_erased_sessions(self, since: float = 0.0) -> Sequence[ErasureRequest]:
        """The sessions that were to be forgotten at this time or later, in seconds since the epoch."""

    def count_erasures(self, since: float = 0.0) -> float:
        """Return a number that grows with each erasure after `since`, in seconds since the epoch; 0 at first.

        The time that a clock ahead noted hides no later erasure.
        """

    def size_bytes(self) -> int:
        """How much space the store takes."""

    def compact(self, *, whole: bool = False, reserve: float = 0.0) -> Iterator[str]:
        """Give space back, in steps, each with what was done; no writer waits long for one.

        A share `reserve` of the store is left empty for new records. With `whole` the store is rewritten,
        and writers wait until that is done.
        """


@runtime_checkable
class OverridesPort(Protocol):
    """Stores overrides for all processes. Methods block and raise `AnalyticsUnavailableError` on failure."""

    def put_override(self, override: Override) -> None:
        """Store an override, in place of the one with its id, and remove those that had expired when it was made."""

    def list_overrides(self) -> Sequence[Override]:
        """All overrides, expired ones perhaps among them, in the order in which they were made."""

    def delete_override(self, override_id: UUID) -> bool:
        """Remove an override; False when there is none with this id."""


@runtime_checkable
class SettingChangesPort(Protocol):
    """Stores settings that were changed at run time, for all processes: the JSON value of each `section.key`.

    Methods block and raise `AnalyticsUnavailableError` on failure.
    """

    def list_setting_changes(self) -> Mapping[str, Any]:
        """Return all changed settings, by key."""

    def put_setting_changes(self, changes: Mapping[str, Any]) -> None:
        """Store these settings, all or none; others stay."""

    def delete_setting_changes(self, keys: Sequence[str]) -> None:
        """Remove these settings, all or none; keys that are not stored are ignored."""


@runtime_checkable
class WarmSetsPort(Protocol):
    """Stores warm sets, so that all processes agree on them and restarts do not change them.

    Methods block; a failure raises `AnalyticsUnavailableError`.
    """

    def get_warm_set(self, key: WarmSetKey) -> WarmSet | None:
        """Return the warm set of a principal, client, profile and project, None if there is none."""

    def put_warm_set(self, warm_set: WarmSet, replaces: float | None) -> WarmSet:
        """Store a warm set in place of the one created at `replaces`, and return the one that is stored.

        If another process has stored one in the meantime, that one stays. Warm sets created more than
        `WARM_SET_TTL_SECONDS` before the given one are removed.
        """

    def forget_warm_sets(self) -> None:
        """Remove all warm sets: the next session makes a new one from what is recorded by then."""

    def list_session_uses(
        self, principal: str | None = None, limit: int = MAX_USAGE_SESSIONS, *, profile: str | None = None
    ) -> Sequence[SessionUse]:
        """Return the latest sessions with a successful call of an upstream tool, newest first.

        Without a principal they are those of all, without a profile those in all. Failed calls and calls of meta-tools
        do not count.
        """


@runtime_checkable
class ToolCatalogsPort(Protocol):
    """Gives the tool catalogs that `AnalyticsPort.record_many` stored.

    Methods block; a failure arrives as `AnalyticsUnavailableError`.
    """

    def list_tool_catalogs(self, fingerprints: Sequence[str]) -> Sequence[StoredToolCatalog]:
        """Return the latest catalogs with these fingerprints, at most one for each variant, in any order."""


@runtime_checkable
class ToolPinsPort(Protocol):
    """Gives and approves the tool pins that `AnalyticsPort.record_many` stored.

    Methods block; a failure arrives as `AnalyticsUnavailableError`.
    """

    def list_tool_pins(self, servers: Sequence[str] | None = None) -> Sequence[ToolPin]:
        """Return the pins of these servers, or of all, by server and name."""

    def approve_tools(self, approved: Sequence[ToolPin]) -> None:
        """Take the `digest` of each pin as approved; other fields count only for tools that have no pin yet.

        The approved definition is the one that was listed, if its digest is equal.
        """


class SessionKey(NamedTuple):
    """The place of a session among all: by its start, in seconds since the epoch, and by its id among equals."""

    started_at: float
    id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session as people list it, with how many calls it made and how many of them failed.

    The session's `sequence` is the highest sequence number that is stored. `exposures` counts all of them, `lists`
    those that are no answers, `list_changes` the lists that differ from the one before, `searches` the answers to
    searches.
    """

    session: Session
    invocations: int
    failures: int
    exposures: int
    lists: int = 0
    list_changes: int = 0
    searches: int = 0


@runtime_checkable
class DashboardQueriesPort(Protocol):
    """Questions about all that was recorded, or the latest of it.

    Methods block; a failure arrives as `AnalyticsUnavailableError`.
    """

    def list_sessions(
        self, limit: int = 100, *, active_only: bool = False, before: SessionKey | None = None
    ) -> Sequence[SessionSummary]:
        """Return the latest sessions whose place is before `before`, newest first; with None the latest of all."""

    def find_session(self, session_id: UUID) -> SessionSummary | None:
        """The session with this id."""

    def list_invocations(self, session_id: UUID, limit: int | None = None) -> Sequence[ToolInvocation]:
        """Return the latest of one session's invocations, or all of them, in order."""

    def latest_exposures(self, session_id: UUID, most: int) -> Sequence[Exposure]:
        """The latest of one session's exposures, in the order of their time."""

    def list_top_cooccurrences(self, most_tools: int) -> Sequence[Cooccurrence]:
        """Return the pairs among the tools of the most frequent pairs, most frequent first, then by name."""


@runtime_checkable
class ArchivePort(RecordStorePort, SessionHistoryPort, Protocol):
    """Stores sessions, calls and lists a second time, for longer, and answers questions about them."""

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
    `record_many`, all records in one transaction or none, and ends of sessions count after all else. Of a learned pair
    or tool catalog that is stored twice the one that was updated last is kept, and of the token usage of a session the
    one with more requests. What is stored and what is returned share nothing that can change.
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

    def get_cooccurrences(self, tools: Sequence[str]) -> Sequence[Cooccurrence]:
        """Return the pairs that contain any of the tools, most frequent first, then by name."""

    def get_tool_frequencies(self, since: float = 0.0) -> Mapping[str, int]:
        """Return the number of uses of each upstream tool since a time, in seconds since the epoch.

        A call is a use if its outcome is one of `USES`. Calls of meta-tools are not counted.
        """

    def maintenance_lease(self) -> AbstractContextManager[bool]:
        """Hold the maintenance lease while the block runs; yields False if another process holds it.

        It never waits for another holder, and the death of a holder frees it. A lease of a server whose connection
        breaks is lost without a word: take it for one round at a time, and do what may be done twice.
        """

    def get_context_vectors(self, session_ids: Sequence[UUID]) -> Mapping[UUID, Vector]:
        """Return the mean vector of the learned pairs of each session that has some; of the most frequent model."""

    def end_idle_sessions(self, before: float) -> int:
        """End every open session that started, called and was shown nothing since `before`, and give their number.

        It ended with the start of its last call or its last exposure; a later `SessionClosed` replaces it.
        """

    def refresh_cooccurrences(self, now: float, most_sessions: int = MAX_COOCCURRENCE_SESSIONS) -> int:
        """Recompute co-occurrence from the successful calls in the latest `most_sessions`; the number of pairs.

        Of each session the first `MAX_TOOLS_PER_SESSION` distinct tools form pairs, without meta-tools. A pair
        that did not change may keep the time at which it was last updated.
        """

    def get_refresh_time(self) -> float:
        """When co-occurrence was computed last, in seconds since the epoch; 0 when it never was or has no pairs."""

    def list_known_tools(self) -> Collection[str]:
        """Return the tools of upstream servers that any recorded list had or hid, or that ran."""

    def list_learned_pairs(self, model: str, limit: int = 5000) -> Sequence[LearnedPair]:
        """The learned pairs of one model, newest first, then the most confident."""

    def prune_learned_pairs(self, most: int, at_once: int = ROW_BATCH_SIZE) -> Iterator[int]:
        """Delete all learned pairs but the `most` newest, of any model, about `at_once` in each step.

        Gives the number that each step forgot; there is no step when there are no more pairs than that.
        """
