"""Prediction where there is none."""

from collections.abc import Callable, Mapping
from typing import Any

from riglm.application.lists.predicting import Predicting
from riglm.domain.invocation import Found
from riglm.domain.prediction import Prediction
from riglm.domain.retrieval.outcome import SearchOutcome
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.domain.tool import Catalogue


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
