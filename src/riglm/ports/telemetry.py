"""Metrics that are scraped, and traces of requests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from uuid import UUID

from riglm.domain.exposure import Exposure, Mode
from riglm.domain.invocation import DiscoveryMethod, ErrorKind
from riglm.domain.list_plan import Prices
from riglm.domain.session import Session
from riglm.domain.tool_pin import ToolPin
from riglm.domain.upstream import UpstreamHealth

if TYPE_CHECKING:  # it comes with what only prediction needs
    from riglm.ports.embedder import EmbedderStatus


@runtime_checkable
class MeterPort(Protocol):
    """Counts what happens. Called on the event loop, within calls: it takes a few microseconds and never raises.

    Durations are in seconds. A component without metrics holds None in place of a meter.
    """

    def called(
        self,
        session_id: UUID,
        tool: str,
        upstream: str,
        found: DiscoveryMethod,
        error_kind: ErrorKind | None,
        seconds: float,
        mode: Mode = "off",
        is_hit: bool | None = None,
    ) -> None:
        """An invocation ended; `error_kind` is None when it succeeded, `upstream` empty when it was refused.

        `mode` is that of the list that the session had, `off` before the first. `is_hit` is None if that list hid
        nothing; in shadow mode it is about the list that would have been shown.
        """

    def held(self, upstream: str, seconds: float) -> None:
        """What riglm itself took of a call that a server answered."""

    def exposed(self, exposure: Exposure, *, changed: bool) -> None:
        """Record a list; `changed` is True if it differs from the previous list of the session."""

    def listed(self, seconds: float) -> None:
        """Record what riglm itself took of a tool list, after the last page of the servers had arrived."""

    def tool_changed(self, pin: ToolPin) -> None:
        """A tool is not as it was approved."""

    def predicted(self, seconds: float) -> None:
        """A prediction was made."""

    def session_opened(self, session: Session) -> None:
        """A session began."""

    def session_closed(self, session_id: UUID, *, ended: bool) -> None:
        """A session is over; unless it `ended`, it goes on in another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCounts:
    """What became of all records so far: accepted = stored + queued + spooled + dropped, always.

    `queued` includes what is being stored. `recovered` is the number of accepted records that came from the spools of
    ended processes. `reasons` is the number of dropped ones by reason: `full`, when the queue and the spool
    were; `refused` by the store; `damaged` in the spool; or `closed`, at the end. `spool_bytes` is what the spool takes
    on disk.
    """

    accepted: int
    stored: int
    queued: int
    spooled: int
    dropped: int
    recovered: int
    reasons: Mapping[str, int]
    spool_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """Sources of the values that are read at a scrape.

    Any thread may call these; none blocks, asks the store or raises. `embedder` gives None where no prediction is made.
    `prices` returns the prices of the sessions that start now. `archived` is as `records`, of what is sent to
    ClickHouse; None if that is not configured.
    """

    records: Callable[[], RecordCounts]
    upstreams: Callable[[], Sequence[UpstreamHealth]]
    sessions: Callable[[], int]
    embedder: Callable[[], "EmbedderStatus | None"]
    prices: Callable[[], Prices] = Prices
    archived: Callable[[], RecordCounts] | None = None


class Span(Protocol):
    """One piece of work in a trace, under way until it is `ended`."""

    def carrier(self) -> Mapping[str, str]:
        """What lets the next one go on with the trace: `traceparent`, and `tracestate` if there is any."""

    def ended(self, error: str | None = None, code: int | None = None) -> None:
        """It is over; `error` is the kind of its failure, None when there was none, `code` that of a JSON-RPC error.

        What comes after the first end is ignored.
        """


@runtime_checkable
class TracerPort(Protocol):
    """Creates spans. Methods neither block nor raise; attributes contain names, never message content."""

    def served(self, name: str, attributes: Mapping[str, str], carrier: Mapping[str, str]) -> Span:
        """Start the span of a client request; `carrier` is its trace context."""

    def asked(self, name: str, attributes: Mapping[str, str], within: Span | None) -> Span:
        """Start the span of a request to a server, as a child of `within` or as a root."""
