"""The files in which clients keep their servers, and what riglm keeps of its changes to them."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from riglm.domain.client_setup import ClientServer, ClientSetup, ConfigLocation
from riglm.domain.token_usage import RequestTokens

if TYPE_CHECKING:
    from riglm.domain.schemas.server import ServerSettings


@runtime_checkable
class ClientsPort(Protocol):
    """Reads clients' files and makes new versions of them; writes nothing."""

    @abstractmethod
    def places(self, project: Path | None) -> tuple[ConfigLocation, ...]:
        """Where servers of clients are, on this machine; with a project, only what is for work in that directory."""

    @abstractmethod
    def servers(self, place: ConfigLocation, content: bytes) -> tuple[ClientServer, ...]:
        """The servers at a place in this version of the file; none where the place is not there.

        Raises:
            ConfigurationError: it is not what its client reads.
        """

    @abstractmethod
    def remarks(self, place: ConfigLocation, names: Collection[str], entry: str) -> tuple[str, ...]:
        """What its user has said of these servers elsewhere, and what becomes of it behind riglm with this name."""

    @abstractmethod
    def with_riglm(
        self,
        place: ConfigLocation,
        content: bytes,
        names: Collection[str],
        *,
        entry: str,
        starts: Sequence[str],
        variables: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        waits: Mapping[str, float] | None = None,
    ) -> bytes:
        """The file with riglm in the place of these servers.

        `starts` is riglm's command line, `variables` are the names of the variables that it needs, `env` contains
        more with their values, `waits` is the client's timeout setting. All other members of an existing entry of
        this name are kept.

        Raises:
            ConfigurationError: the file cannot be changed faithfully.
        """

    @abstractmethod
    def with_preloading(self, place: ConfigLocation, content: bytes, entry: str) -> bytes:
        """Return the file by which the client loads the tools of riglm's entry at once, and does not defer them.

        It is the same file for a client that defers no tools, or honors preload hints.

        Raises:
            ConfigurationError: the file cannot be changed faithfully.
        """

    @abstractmethod
    def without_preloading(self, place: ConfigLocation, content: bytes, entries: Sequence[str], before: bytes) -> bytes:
        """Return the file without what `with_preloading` changed in `before`.

        `entries` are riglm's name then, and others that it has now.

        Raises:
            ConfigurationError: the file cannot be changed faithfully.
        """

    @abstractmethod
    def without_riglm(
        self, place: ConfigLocation, content: bytes, entry: str | None, before: bytes, names: Collection[str]
    ) -> bytes:
        """The file with servers of an earlier version of it where riglm is, or at the end if that is not there.

        Raises:
            ConfigurationError: the file cannot be changed faithfully.
        """


@runtime_checkable
class ServersFilePort(Protocol):
    """riglm's configuration of the servers behind it; creates new versions, writes nothing."""

    @abstractmethod
    def servers(self, file: Path, content: bytes | None) -> Mapping[str, Any]:
        """The servers in this version of the file.

        Raises:
            ConfigurationError: it is no configuration.
        """

    @abstractmethod
    def fault(self, name: str, definition: Mapping[str, Any], directory: Path | None) -> str:
        """Why riglm would not start with this server, or nothing; it is started in the directory, if one is known."""

    @abstractmethod
    def settings(self, name: str, definition: Mapping[str, Any]) -> "ServerSettings":
        """Return the settings of a server without a fault, with its variables expanded."""

    @abstractmethod
    def with_servers(self, content: bytes | None, servers: Mapping[str, Mapping[str, Any]], head: str) -> bytes:
        """The file with servers added; a new one begins with the comment lines of `head`, in shadow mode.

        Raises:
            ConfigurationError: the file cannot be changed faithfully.
        """


@runtime_checkable
class FilesPort(Protocol):
    """Files written so that each is at any time the old one or the new one, whole."""

    @abstractmethod
    def read(self, file: Path) -> bytes | None:
        """What it holds; None when there is no such file."""

    @abstractmethod
    def has_folder(self, file: Path) -> bool:
        """Whether the directory that the file is in, or would be, is there."""

    @abstractmethod
    def write(self, file: Path, before: bytes | None, after: bytes | None) -> None:
        """Replace the content of the file, or delete it; a new one is readable for its user only.

        Raises:
            Conflict: it cannot be written, or does not hold what it held before.
        """

    @abstractmethod
    def clear(self, directory: Path) -> tuple[Path, ...]:
        """Remove what a riglm that was stopped while it wrote left in a directory; what was removed."""


@runtime_checkable
class InstallationsPort(Protocol):
    """What riglm keeps of its changes to clients' files: the newest last, and copies of what the files were."""

    @abstractmethod
    def all(self) -> tuple[ClientSetup, ...]:
        """Every change that was not taken back; none when the record cannot be read."""

    @abstractmethod
    def keep(self, place: ConfigLocation, content: bytes) -> str:
        """Keep a copy of a client's file; its name."""

    @abstractmethod
    def kept(self, name: str) -> bytes | None:
        """Return a copy that was kept; None if it was removed."""

    @abstractmethod
    def where(self, name: str) -> Path:
        """Where a copy is kept."""

    @abstractmethod
    def add(self, installation: ClientSetup) -> None:
        """Note a change that is about to be made."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Remove a copy."""

    @abstractmethod
    def drop(self, installations: Sequence[ClientSetup]) -> None:
        """Forget changes that were taken back, and their copies."""


class CallOutcome(StrEnum):
    """The outcome of a call in a transcript."""

    DONE = "done"
    FAILED = "failed"  # the tool ran, and its result is an error
    NOT_RUN = "not run"  # the user or the client refused it, there is no such tool, or its server did not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """A user message in the conversation `lane`; `at` in seconds since the epoch."""

    lane: str
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptCall:
    """A call of an MCP tool that has ended, in the conversation `lane`.

    `identity` is equal for all copies of the call and unique among the calls of this client. `name` is the tool as the
    client names it; `server` its server if the client gives it separately. `arguments` is JSON. Times are in seconds
    since the epoch; `ended` and `ending` are set when the end is read. If `is_copy`, the call was made in another file
    and at another time. `directory` is where the client was started, empty if unknown.
    """

    lane: str
    identity: str
    name: str
    server: str | None = None
    arguments: bytes
    started: float
    ended: float = 0.0
    ending: CallOutcome = CallOutcome.NOT_RUN
    is_copy: bool = False
    directory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptRequest:
    """A model request in the conversation `lane`, `at` in seconds since the epoch.

    `identity` is equal for all copies of the request and unique among the requests of this client. Of copies in one
    conversation the one with the most output counts: clients also write requests whose response is incomplete.
    """

    lane: str
    identity: str
    at: float
    tokens: RequestTokens


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableLine:
    """A line, counted from 1, that cannot be read, and why."""

    line: int
    reason: str


TranscriptEvent = UserMessage | TranscriptCall | TranscriptRequest | UnreadableLine


@runtime_checkable
class TranscriptsPort(Protocol):
    """The transcripts of one client."""

    @property
    @abstractmethod
    def client(self) -> str:
        """The client as riglm's commands name it."""

    @property
    @abstractmethod
    def introduces_itself(self) -> str:
        """The client as it names itself to servers."""

    @property
    @abstractmethod
    def separator(self) -> str:
        """The separator between server and tool in tool names, if the client does not give the server separately."""

    @abstractmethod
    def files(self, place: Path | None = None) -> list[Path]:
        """The transcripts in a file or folder, by default where the client leaves them; none if there is nothing.

        Raises:
            OSError: it may not be looked at.
        """

    @abstractmethod
    def wrote(self, file: Path) -> bool:
        """Whether a file begins as this client's transcripts do.

        Raises:
            OSError: it cannot be read.
        """

    @abstractmethod
    def read(self, file: Path, advance: Callable[[int], None]) -> Iterator[TranscriptEvent]:
        """Yield the events in the order written; `advance` is called with the number of bytes read.

        Raises:
            OSError: it cannot be read.
        """
