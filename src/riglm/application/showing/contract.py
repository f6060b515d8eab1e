"""What the wire asks of whoever decides what a client is shown."""

from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import Final, Protocol

from riglm.application.failing_open import FailingOpen
from riglm.application.forwarding.services import Observer
from riglm.application.lists.meta_answers import MetaAnswer
from riglm.application.lists.selection import ListSelection
from riglm.domain.exposure import Surface
from riglm.domain.invocation import ErrorKind, Found
from riglm.domain.jsonrpc import Raw
from riglm.domain.parameters import Parameters
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.domain.tool import Catalogue


class Filter(Protocol):
    """The one decision function, as the wire uses it."""

    @property
    @abstractmethod
    def is_on(self) -> bool:
        """Whether any list or call may be another one than without riglm; if not, all of them pass untouched."""

    @property
    @abstractmethod
    def guards(self) -> bool:
        """Whether there are tools that are denied."""

    @abstractmethod
    def surface(self, session: Session) -> Surface:
        """How a selection reaches the client."""

    @abstractmethod
    def announces(self, session: Session) -> bool:
        """Whether the lists of a session may change while its client is connected."""

    @abstractmethod
    def when_foreshadowed(self, listener: Callable[[Session, ListSelection], None]) -> None:
        """Tell somebody, in shadow mode, of each list that a client would have been told to ask for."""

    @abstractmethod
    def overridden(self, session: Session) -> bool:
        """People decided anew about tools; whether the session's list is another one now than its client has."""

    @abstractmethod
    def reconfigured(self, session: Session) -> bool:
        """The rules changed; whether the session's list is another one now than its client has."""

    @abstractmethod
    def passed(self, session: Session, catalogue: Catalogue, *, is_whole: bool) -> None:
        """While the filter was off, a client got a list, or the first page of one that is not whole."""

    @abstractmethod
    def needs_usage(self, session: Session) -> bool:
        """Return True if `prepare` must be awaited before `compose`."""

    @abstractmethod
    async def prepare(self, session: Session) -> None:
        """Read the recorded use that the session's list is made from."""

    @abstractmethod
    def compose(self, session: Session, catalogue: Catalogue) -> ListSelection:
        """What the session is shown of a catalogue now."""

    @abstractmethod
    def know(self, session: Session, catalogue: Catalogue) -> None:
        """Take note of the catalogue of a session that is shown no list now."""

    @abstractmethod
    def fresh_seconds(self, session: Session) -> float:
        """For how long a list that was composed now may be kept; the same for the same list."""

    @abstractmethod
    def denial(self, session: Session, name: str, owner: tuple[str, str] | None = None) -> str | None:
        """Why a tool may not be called, None when it may; `owner` is its server, and the server's own name for it."""

    @abstractmethod
    def denies_by_name(self, name: str) -> bool:
        """Whether the deny list means one of riglm's own tools; no list has to allow it."""

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
    def called(self, session: Session, tool: str, found: Found, turn_key: str, *, success: bool) -> None:
        """Note a call that has ended."""


class MetaTools(Protocol):
    """riglm's own tools."""

    @abstractmethod
    def owns(self, session: Session, name: str) -> bool:
        """Whether a session knows a tool as one of riglm's own."""

    @abstractmethod
    def is_denied(self, name: str) -> bool:
        """Whether the deny list means one of riglm's own tools, by whichever of its names."""

    @abstractmethod
    def withholds(self, session: Session, name: str) -> bool:
        """Whether a name means a tool of riglm's that is denied, and none of a server's: no server gets the call."""

    @abstractmethod
    def is_about_lists(self, name: str) -> bool:
        """Whether one of riglm's own tools needs to know the session's list, or whether it has the name at all does."""

    @abstractmethod
    def is_confidential(self, name: str) -> bool:
        """Whether what one of riglm's own tools is asked is nowhere kept as it is."""

    @abstractmethod
    async def run(self, session: Session, name: str, arguments: bytes) -> MetaAnswer:
        """Run one of riglm's own tools."""


_NOT_RUN: Final = frozenset({ErrorKind.PROTOCOL, ErrorKind.UNAVAILABLE})
"""How calls end that used no tool."""


class CallWatch(Observer):
    """Watches the calls of one client, or of all clients of the modern era."""

    __slots__ = ("_filtering", "_guarded")

    def __init__(self, filtering: Filter, guarded: FailingOpen) -> None:
        """`guarded` is for all watches."""
        self._filtering = filtering
        self._guarded = guarded

    @property
    def sees_lists(self) -> bool:
        """Lists are noted by whoever composes them; where they pass untouched, nobody does."""
        return self._filtering.is_on

    def calling(
        self, session: Session, tool: str, given: Parameters, *, known: bool
    ) -> tuple[Found, Callable[[ErrorKind | None], None]]:
        """An invocation starts."""
        found = Found.LISTED if known else Found.NAMED
        with self._guarded:
            found = self._found(session, tool, known=known)

        def ended(kind: ErrorKind | None) -> None:
            if kind not in _NOT_RUN:
                with self._guarded:
                    turn_key = self._filtering.turn_key(given.meta)
                    self._filtering.called(session, tool, found, turn_key, success=kind is None)

        return found, ended

    def _found(self, session: Session, tool: str, *, known: bool) -> Found:
        """By the last list that the session was shown; by what the upstream listed if it was shown none.

        A tool that riglm suggested counts as listed: the client did not have to search for it.
        """
        state = self._filtering.state(session)
        is_listed = known if state.shown is None else tool in self._filtering.listed(session)
        if is_listed or tool in state.suggested:
            return Found.LISTED
        return Found.SEARCHED if tool in state.searched else Found.NAMED
