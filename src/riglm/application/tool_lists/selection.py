"""The tools that one client gets, in a list or a result of a meta-tool, and the interface that predicts them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Protocol
from uuid import UUID

from riglm.domain.exposure import Exposure, ShownTools
from riglm.domain.invocation import DiscoveryMethod
from riglm.domain.learning import WarmSet
from riglm.domain.prediction import Prediction, ToolSearchResult
from riglm.domain.session import Session, uuid7
from riglm.domain.session_state import SessionState
from riglm.domain.tool import ToolCatalog


@dataclass(frozen=True, slots=True)
class ListSelection(ShownTools):
    """The tools that a client gets and those that are hidden from it, in the catalog's order.

    `raw` is a JSON array of the entries of a list; with `is_passthrough` they are those of the upstream's response,
    unchanged. Denied tools are neither shown nor hidden. `meta_tools` are those that the session can call. Selections
    that differ in bytes of the same number of tokens or in meta-tools only are equal.
    """

    raw: bytes = field(default=b"", compare=False)
    is_passthrough: bool = field(default=False, compare=False)
    meta_tools: tuple[str, ...] = field(default=(), compare=False)

    def to_exposure(self, session_id: UUID, timestamp: float) -> Exposure:
        """Return the record that a session was shown this, at a time in seconds since the epoch."""
        shown = {each.name: getattr(self, each.name) for each in fields(ShownTools)}
        return Exposure(**shown, id=uuid7(), session_id=session_id, timestamp=timestamp)


NO_LIST: Final = ListSelection()
"""What a session has before its first list."""


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
