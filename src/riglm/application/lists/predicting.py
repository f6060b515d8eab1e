"""What filtering and the meta-tools ask of prediction."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from riglm.domain.invocation import Found
from riglm.domain.prediction import Prediction, SearchOutcome
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.domain.tool import Catalogue
from riglm.domain.usage import Usage


class UsageEstimates(Protocol):
    """Estimates by everything that is recorded by now."""

    def after(self, used: Collection[str]) -> Mapping[str, float]:
        """Return the probability of each other tool in a session that has used these."""
        ...


class UsageSource(Protocol):
    """The recorded use that lists and results are made from."""

    async def refresh(self, session: Session, profile: str) -> None:
        """Read what is recorded, for a session that starts."""
        ...

    def usage(self, session: Session, profile: str) -> Usage | None:
        """Return the estimate for the lists of a session, None while nothing was learned."""
        ...

    def model(self, session: Session, profile: str) -> UsageEstimates:
        """Return what is recorded by now."""
        ...


class Predicting(Protocol):
    """Prediction, as its service offers it. Nothing here raises because of a model, a predictor or a store."""

    def know(self, catalogue: Catalogue) -> None:
        """Take note of the tools that a client can be shown."""
        ...

    def predict(
        self, session: Session, state: SessionState, names: tuple[str, ...], *, explain: bool = False
    ) -> Prediction | None:
        """What the session calls next among `names`, on request by signal; None when there is nothing to go by."""
        ...

    async def acquaint(self, session: Session) -> None:
        """Have at hand what was learned for the session's principal, as far as that is soon done."""
        ...

    def context_confidence(self, session: Session, state: SessionState) -> float:
        """How sure the session's context makes us, between 0 and 1."""
        ...

    def size(self, session: Session, prediction: Prediction) -> int:
        """How many of the best tools the configured coverage asks for."""
        ...

    def needed(self, session: Session, state: SessionState, names: tuple[str, ...]) -> Mapping[str, float]:
        """Return the probability of tools in the rest of a session, by its context; empty with nothing to go by."""
        ...

    @property
    def is_ready(self) -> bool:
        """True if meanings are compared, or the fallback that replaces this is final."""
        ...

    async def set_context(self, session: Session, state: SessionState, text: str) -> None:
        """The session says what it is about; `state` knows it afterwards."""
        ...

    async def search(self, session: Session, query: str, limit: int, allowed: Callable[[str], bool]) -> SearchOutcome:
        """The tools that fit a query, among those that are allowed."""
        ...

    def called(self, session: Session, state: SessionState, tool: str, found: Found, names: tuple[str, ...]) -> None:
        """The session called a tool, and `state` does not know yet; its `queries` tell what search found the tool."""
        ...

    def marked(self, session: Session, state: SessionState, tool: str, *, relevant: bool) -> None:
        """The client says whether a tool belongs to the session's context."""
        ...

    def status(self) -> dict[str, Any]:
        """The capability signal, how much is indexed, and advice."""
        ...


class Unpredicted(Predicting):
    """Knows nothing and learns nothing."""

    def know(self, catalogue: Catalogue) -> None:
        """Forget it."""

    def predict(
        self, session: Session, state: SessionState, names: tuple[str, ...], *, explain: bool = False
    ) -> Prediction | None:
        """Nothing to go by."""
        return None

    async def acquaint(self, session: Session) -> None:
        """Nothing was learned."""

    def context_confidence(self, session: Session, state: SessionState) -> float:
        """None at all."""
        return 0.0

    def size(self, session: Session, prediction: Prediction) -> int:
        """All of them."""
        return len(prediction.scores)

    def needed(self, session: Session, state: SessionState, names: tuple[str, ...]) -> Mapping[str, float]:
        """Return nothing."""
        return {}

    @property
    def is_ready(self) -> bool:
        """True: nothing is loaded."""
        return True

    async def set_context(self, session: Session, state: SessionState, text: str) -> None:
        """It tells nothing."""

    async def search(self, session: Session, query: str, limit: int, allowed: Callable[[str], bool]) -> SearchOutcome:
        """Nothing fits."""
        return SearchOutcome(hits=(), near=(), abstained=True)

    def called(self, session: Session, state: SessionState, tool: str, found: Found, names: tuple[str, ...]) -> None:
        """It teaches nothing."""

    def marked(self, session: Session, state: SessionState, tool: str, *, relevant: bool) -> None:
        """It teaches nothing."""

    def status(self) -> dict[str, Any]:
        """Nothing to tell."""
        return {}
