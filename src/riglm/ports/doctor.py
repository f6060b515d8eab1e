"""The outside world as an examination looks at it: nothing is made, changed or held.

Methods block, within bounds, unless their docstring says otherwise.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOutput:
    """Output of a server next to the protocol: the last lines of its standard error, and what else it wrote to stdout.

    `noise` counts the lines on stdout that were no messages. `framing` is `FRAMED_BY_HEADERS` or `FRAMED_OVER_LINES` if
    such a line showed that.
    """

    rate_limited_log: tuple[str, ...] = ()
    noise: int = 0
    framing: str = ""


@runtime_checkable
class LogCapturePort(Protocol):
    """Collects the output of servers next to the protocol; reading it does not block."""

    @abstractmethod
    def heard(self, upstream: str) -> ServerOutput:
        """What the server of this name said since it was forgotten last."""

    @abstractmethod
    def forget(self, upstream: str) -> None:
        """What the server of this name said so far counts no more."""


@runtime_checkable
class SchemaValidatorPort(Protocol):
    """Knows JSON Schema."""

    @abstractmethod
    def fault(self, schema: Any) -> str | None:
        """Why this is no JSON Schema; None when it is one. No reference is followed."""


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
    """How many pieces of knowledge there are, and how many of them have no vector yet."""

    pieces: int
    without_vector: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """A store as it is found; times are in seconds since the epoch.

    `schema` is the newest migration that ran, None where there is no store yet; `pending` are those to come.
    `newest` is the time of the newest record, 0 without records; `seconds_ahead` is how far the clock is ahead of the
    known time of `MaintenancePort.get_reliable_time`, 0 if the clock is reliable. `keeper` and
    `writer` are the processes that run maintenance and that hold the write lock, or None. `changed_tools` are the
    servers and own names of tools that are not as they were approved.
    """

    place: str
    schema: str | None
    pending: tuple[str, ...] = ()
    size_bytes: int = 0
    free_bytes: int | None = None
    sessions: int = 0
    newest: float = 0.0
    seconds_ahead: float = 0.0
    keeper: str | None = None
    writer: str | None = None
    clients: tuple[RecordedClient, ...] = ()
    knowledge: KnowledgeTotals | None = None
    changed_tools: tuple[tuple[str, str], ...] = ()


@runtime_checkable
class StoreInspectorPort(Protocol):
    """Looks at the store."""

    @abstractmethod
    def look(self) -> StoreStatus:
        """The store as it is.

        Raises:
            AnalyticsUnavailableError: it cannot be read; `SchemaTooNewError` when a newer riglm wrote it.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatus:
    """Records that wait on disk for the store; `is_held` is True if the process that wrote them still runs."""

    place: str
    records: int
    damaged: int
    is_newer: bool
    is_held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PortOwner:
    """Who has a port: `words` for people, `is_riglm` whether it is one."""

    words: str
    is_riglm: bool = False


@runtime_checkable
class PortInspectorPort(Protocol):
    """Looks at ports of this machine."""

    @abstractmethod
    def listener(self, host: str, port: int) -> PortOwner | None:
        """Who listens there; None when the port is free.

        Raises:
            OSError: the address cannot be used.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class InsecureFile:
    """A file or directory that other users of this machine may read or change; `mode` as `ls` counts it, in octal."""

    path: Path
    mode: str


@runtime_checkable
class FileInspectorPort(Protocol):
    """Looks at files and directories."""

    @abstractmethod
    def exposed(self, path: Path) -> InsecureFile | None:
        """The path, if others than its owner may use it; None when they may not, or it is not there."""

    @abstractmethod
    def is_file(self, path: Path) -> bool:
        """Whether there is a file, and it may be read."""

    @abstractmethod
    def is_writable(self, directory: Path) -> bool:
        """Whether files can be made in a directory, or it can be made itself."""

    @abstractmethod
    def free_bytes(self, path: Path) -> int | None:
        """Return the free space of the disk that holds the path, or would; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderCheckResult:
    """The model that is used, and the reason if it is not the configured one; durations are in milliseconds."""

    wanted: str
    at_work: str
    is_fallback: bool
    is_semantic: bool
    reason: str
    load_ms: float
    embed_ms: float


@runtime_checkable
class ProgramsPort(Protocol):
    """Looks for programs."""

    @abstractmethod
    def found(self, program: str) -> str | None:
        """The path of a program, as a shell would find it; None when there is none."""

    @abstractmethod
    def version_of_riglm(self, command: Sequence[str]) -> str | None:
        """What this riglm says its version is; None when it says nothing of the kind in time."""
