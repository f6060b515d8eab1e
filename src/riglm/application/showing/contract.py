"""What the wire asks of whoever decides what a client is shown."""

from abc import abstractmethod
from collections.abc import Collection
from typing import Protocol

from riglm.domain.exposure import Mode
from riglm.domain.invocation import Found
from riglm.domain.jsonrpc import Raw
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.domain.tool import Catalogue


class Selection(Protocol):
    """What was shown and hidden, by whose choice, and why; the members are those of an exposure."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The upstream's tools that were shown, in order."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """The upstream's tools that were not."""

    @property
    def predictor(self) -> str:
        """Who chose."""

    @property
    def reason(self) -> str:
        """Why."""

    @property
    def mode(self) -> Mode:
        """Whether the choice was followed."""

    @property
    def surface(self) -> str:
        """How it reached the client."""

    @property
    def tokens_shown(self) -> int:
        """Estimated tokens of what was shown."""

    @property
    def tokens_hidden(self) -> int:
        """Estimated tokens of what was hidden."""

    @property
    def tokens_own(self) -> int:
        """Estimated tokens of riglm's own tools."""


class ShownList(Protocol):
    """What one client is shown of a catalogue."""

    @property
    def untouched(self) -> bool:
        """Whether the client is to get the upstream's own bytes and pages."""

    @property
    def raw(self) -> bytes:
        """The entries to send, as a JSON array."""

    @property
    def selection(self) -> Selection:
        """What is shown and hidden, and why."""


class Filter(Protocol):
    """The one decision function, as the wire uses it."""

    @abstractmethod
    def surface(self, session: Session) -> str:
        """How a selection reaches the client: `dynamic`, `stable`, `hints` or `full`."""

    @abstractmethod
    async def prepare(self, session: Session, catalogue: Catalogue) -> None:
        """Fetch what `compose` needs on a surface whose lists stay the same for an epoch."""

    @abstractmethod
    def compose(self, session: Session, catalogue: Catalogue) -> ShownList:
        """What the session is shown of a catalogue now."""

    @abstractmethod
    def know(self, session: Session, catalogue: Catalogue) -> None:
        """Take note of the catalogue of a session that is shown no list now."""

    @abstractmethod
    def fresh_seconds(self, session: Session) -> float:
        """For how long a list that was composed now stays as it is, unless the catalogue changes."""

    @abstractmethod
    def denial(self, session: Session, name: str) -> str | None:
        """Why a tool may not be called, None when it may."""

    @abstractmethod
    def state(self, session: Session) -> SessionState:
        """What is remembered of a session."""

    @abstractmethod
    def listed(self, session: Session) -> Collection[str]:
        """The names in the last list that the session was shown."""

    @abstractmethod
    def forget(self, session: Session) -> None:
        """A session has ended."""

    @abstractmethod
    def turn_key(self, meta: Raw | bytes) -> str:
        """The turn that a call belongs to, by its raw `_meta`; empty when it does not say."""

    @abstractmethod
    def called(self, session: Session, tool: str, found: Found, turn_key: str) -> bool:
        """A call has ended; whether the session's list is another one now, which must be announced."""


class MetaAnswer(Protocol):
    """What comes of a call of one of riglm's own tools."""

    @property
    def result(self) -> bytes:
        """The raw result, unless the call is forwarded."""

    @property
    def list_changed(self) -> bool:
        """Whether the session's list is another one now, which must be announced."""

    @property
    def forward(self) -> tuple[str, Raw | bytes | None] | None:
        """The tool that is to run in the place of this one, and its raw arguments."""

    @property
    def selection(self) -> Selection | None:
        """The tools that the result shows, if it does."""


class MetaTools(Protocol):
    """riglm's own tools."""

    @abstractmethod
    def owns(self, session: Session, name: str) -> bool:
        """Whether a session knows a tool as one of riglm's own."""

    @abstractmethod
    async def run(self, session: Session, name: str, arguments: bytes) -> MetaAnswer:
        """Run one of riglm's own tools."""
