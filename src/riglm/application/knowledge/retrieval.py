"""Answers a question with snippets of what is known: found by meaning, told as they are, never written anew."""

import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from riglm.application.knowledge.errors import Code, Unanswered
from riglm.application.knowledge.parameters import Question
from riglm.domain.errors import AnalyticsUnavailable
from riglm.domain.knowledge.pieces import Candidate, Embedding
from riglm.domain.knowledge.provenance import Table
from riglm.domain.knowledge.selecting import Request, Snippet, selected
from riglm.ports.embedder import EmbedderUnavailable
from riglm.ports.knowledge import Scope

_CANDIDATES_PER_SNIPPET: Final = 3
_REHEARSED: Final = "what is known"
_LOCAL: Final = Scope(owner="")

Reason = Literal["floor_excluded_all", "no_candidates"]


class Store(Protocol):
    """What is asked of the store, off the event loop."""

    async def nearest(self, table: Table, asked: Embedding, scope: Scope, most: int) -> list[Candidate]:
        """As `KnowledgePort.nearest`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """A question's vector, and who made it."""

    provider: str
    embedding: Embedding


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """How an answer came about; nothing in it is content."""

    provider: str
    model: str
    dim: int
    k_req: int
    k_ret: int
    kg_candidates: int
    thought_candidates: int
    floor: float
    floor_used: float
    latency_ms: int
    reason: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Snippets, the most similar first."""

    snippets: tuple[Snippet, ...]
    diagnostics: Diagnostics


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far the floor may give way, and how many candidates of each table are looked at at most."""

    min_floor: float
    most_candidates: int


class Retrieval:
    """Asks each table by itself, those of a source without a share not at all, and merges what they give."""

    def __init__(
        self,
        embed: Callable[[str], Awaitable[Embedded]],
        store: Store,
        bounds: Bounds,
        *,
        shared: bool = False,
        monotonic: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`bounds` may be others for the next question; with `shared` everybody is answered from everybody's."""
        self._embed = embed
        self._store = store
        self.bounds = bounds
        self._shared = shared
        self._monotonic = monotonic

    async def rehearse(self) -> None:
        """Have all loaded that a question needs; what cannot be had now is left to the question."""
        with contextlib.suppress(EmbedderUnavailable, AnalyticsUnavailable):
            embedded = await self._embed(_REHEARSED)
            for table in Table:
                await self._store.nearest(table, embedded.embedding, _LOCAL, 1)

    async def answer(self, asked: Question, owner: str) -> Answer:
        """The answer for a principal, by its keyed hash.

        Raises:
            Unanswered: the embedder or the store cannot be had.
        """
        begun, bounds = self._monotonic(), self.bounds
        try:
            embedded = await self._embed(asked.query)
        except EmbedderUnavailable as error:
            raise Unanswered(Code.EMBEDDER_UNAVAILABLE, "the embedder does not answer now; ask again later") from error
        scope = Scope(
            owner=None if self._shared else owner,
            include_private=asked.include_private,
            include_tags=asked.include_tags,
            exclude_tags=asked.exclude_tags,
        )
        most = min(_CANDIDATES_PER_SNIPPET * asked.top_k, bounds.most_candidates)
        request = Request(top_k=asked.top_k, mix=asked.mix, floor=asked.floor, min_floor=bounds.min_floor)
        wanted = [table for table in Table if (request.wants_graph if table.is_graph else request.wants_thoughts)]
        try:
            found = [await self._store.nearest(table, embedded.embedding, scope, most) for table in wanted]
        except AnalyticsUnavailable as error:
            raise Unanswered(Code.DB_ERROR, "the knowledge store does not answer now; ask again later") from error
        candidates = [each for some in found for each in some]
        thoughts = [each for each in candidates if not each.table.is_graph]
        graph = [each for each in candidates if each.table.is_graph]
        snippets, floor_used = selected(request, thoughts, graph)
        reason: Reason | None = None
        if not snippets:
            reason = "floor_excluded_all" if thoughts or graph else "no_candidates"
        diagnostics = Diagnostics(
            provider=embedded.provider,
            model=embedded.embedding.model,
            dim=embedded.embedding.dimensions,
            k_req=asked.top_k,
            k_ret=len(snippets),
            kg_candidates=len(graph),
            thought_candidates=len(thoughts),
            floor=asked.floor,
            floor_used=floor_used,
            latency_ms=round((self._monotonic() - begun) * 1000),
            reason=reason,
        )
        return Answer(snippets=tuple(snippets), diagnostics=diagnostics)
