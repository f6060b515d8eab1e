"""What filtering and the meta-tools need of prediction."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.prediction import Prediction, ToolSearchResult
from riglm.domain.session import Session
from riglm.domain.session_state import SessionState
from riglm.domain.tool import ToolCatalog
from riglm.domain.usage import WarmSet


class UsageSource(Protocol):
    """What the configured strategy expects of the next session, by recorded sessions."""

    async def refresh(self, session: Session, candidates: Sequence[str]) -> None:
        """Read what is recorded, for a session that starts and may use the candidates."""
        ...

    def warm_set(self, session: Session) -> WarmSet | None:
        """Return what the lists of a session are made from, None while nothing was learned."""
        ...


class NullPrediction:
    """The prediction service, doing nothing: it knows nothing and learns nothing.

    No method raises because of a model, a predictor or a store.
    """

    def know(self, catalog: ToolCatalog) -> None:
        """Take note of the tools that a client can get."""

    def predict(
        self, session: Session, state: SessionState, names: tuple[str, ...], *, explain: bool = False
    ) -> Prediction | None:
        """Return how likely the rest of the session needs each of `names`, with `explain` by signal.

        None if nothing is known.
        """
        return None

    def begin(self) -> None:
        """Load now what the first search or context would wait for."""

    async def acquaint(self, session: Session) -> None:
        """Load what was learned for the session's principal; wait a few seconds for it."""

    def context_confidence(self, session: Session, state: SessionState) -> float:
        """Return the confidence of the session's context, between 0 and 1."""
        return 0.0

    @property
    def is_ready(self) -> bool:
        """True if meanings are compared, or the fallback that replaces this is final."""
        return True

    async def set_context(self, session: Session, state: SessionState, text: str) -> None:
        """Set the context of a session in its state."""

    async def search(
        self, session: Session, query: str, limit: int, allowed: Callable[[str], bool]
    ) -> ToolSearchResult:
        """Return the tools that fit a query, among those that are allowed."""
        return ToolSearchResult(hits=(), near=(), abstained=True)

    def called(self, session: Session, state: SessionState, tool: str, found: DiscoveryMethod) -> None:
        """Learn from a call that `state` does not contain yet; its `queries` are those that found the tool."""

    def ended(self, session: Session, state: SessionState) -> None:
        """Learn that a session needs no further tool."""

    def marked(self, session: Session, state: SessionState, tool: str, *, relevant: bool) -> None:
        """Learn from feedback on whether a tool belongs to the session's context."""

    def status(self) -> dict[str, Any]:
        """Return the status of embedder and index, with advice."""
        return {}
