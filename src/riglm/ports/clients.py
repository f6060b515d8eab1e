"""The files in which clients keep their servers, and what riglm keeps of its changes to them."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from riglm.domain.client_setup import ClientServer, ClientSetup, ConfigLocation

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
