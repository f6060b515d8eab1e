"""What clients leave on disk of their conversations."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Ending(StrEnum):
    """What became of a call, as far as its transcript says."""

    DONE = "done"
    FAILED = "failed"  # the tool ran, and its result is an error
    NOT_RUN = "not run"  # the user or the client refused it, there is no such tool, or its server did not answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What somebody asked of the model in the conversation `lane`; `at` in seconds since the epoch."""

    lane: str
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call of an MCP tool that has ended, in the conversation `lane`.

    `identity` is the same wherever the client copied the call to, and that of no other call of this client. `name` is
    the tool as the client names it; `server` its server where the client says it apart, or it stands in the name.
    `arguments` is JSON. Times are in seconds since the epoch. What `is_copy` was made elsewhere, and at another time.
    """

    lane: str
    identity: str
    name: str
    server: str | None
    arguments: bytes
    started: float
    ended: float
    ending: Ending
    is_copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """A line, counted from 1, that cannot be read, and why."""

    line: int
    reason: str


Happening = Said | Called | Damaged


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
        """What stands in the names of tools between a server and its tool, where the client does not say it apart."""

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
    def read(self, file: Path, advance: Callable[[int], None]) -> Iterator[Happening]:
        """What happened, in the order written; `advance` is told of each number of bytes read.

        Raises:
            OSError: it cannot be read.
        """
