"""What `riglm doctor` finds: findings, and the state of a store."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedClient:
    """A client as the store saw it last; `era`, `transport` and `no_tool_search` are those of its latest session."""

    name: str
    version: str
    era: str
    transport: str
    last_seen: float
    sessions: int
    no_tool_search: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeTotals:
    """Number of pieces of knowledge, and of those without a vector."""

    pieces: int
    without_vector: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """A store as it is found; times are in seconds since the epoch.

    `schema` is the newest migration that ran, None where there is no store yet; `pending` are those to come.
    `newest` is the time of the newest record, 0 without records; `seconds_ahead` is how far the clock is ahead of the
    known time of `MaintenancePort.get_reliable_time`, 0 if the clock is reliable. `changed_tools` are
    the servers and own names of tools that are not as they were approved.
    """

    place: str
    schema: str | None
    pending: tuple[str, ...] = ()
    size_bytes: int = 0
    free_bytes: int | None = None
    sessions: int = 0
    newest: float = 0.0
    seconds_ahead: float = 0.0
    clients: tuple[RecordedClient, ...] = ()
    knowledge: KnowledgeTotals | None = None
    changed_tools: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatus:
    """The spool of one process; `is_held` is True while that process, or one that adopted it, runs.

    `records` can be read, `damaged` cannot. `is_newer` is True if a newer riglm wrote it, so that nothing is counted.
    """

    path: Path
    is_held: bool
    records: int
    damaged: int
    is_newer: bool
    size_bytes: int


class Severity(StrEnum):
    """How much a finding matters, least first.

    `OK`: it is as it should be. `NOTE`: good to know, nothing needs to be done. `WARNING`: it works, and something is
    lost or will go wrong. `ERROR`: something does not work.
    """

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class DoctorSection(StrEnum):
    """Parts that are examined, in the order of the report."""

    CONFIGURATION = "configuration"
    SERVERS = "servers"
    TOOLS = "tools"
    STORE = "store"
    EMBEDDER = "embedder"
    PORTS = "ports"
    CLIENTS = "clients"
    KNOWLEDGE = "knowledge"
    MACHINE = "machine"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found: where, what, and what to do about it, as a command or a key to set.

    `fix` is empty where nothing needs to be done.
    """

    section: DoctorSection
    severity: Severity
    place: str
    what: str
    fix: str = ""


def is_healthy(findings: Iterable[Finding]) -> bool:
    """True if no finding is a warning or an error."""
    return all(finding.severity in {Severity.OK, Severity.NOTE} for finding in findings)
