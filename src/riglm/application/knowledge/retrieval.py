"""Answers queries with stored snippets, found by meaning and returned unchanged."""

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from riglm.application.knowledge.definition import MAX_SNIPPETS, ErrorCode, RetrievalError
from riglm.application.worker import Urgency, Worker
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.knowledge import Embedding, Snippet, SnippetCandidate, SnippetQuery, Table, is_visible, selected
from riglm.domain.schemas.filtering import KnowledgeSettings
from riglm.ports.embedder import EmbedderPort, Embedders, EmbedderUnavailableError
from riglm.ports.knowledge import Scope

MAX_QUERY_LENGTH: Final = 8_000
"""Characters of a question that are read; a model reads no more."""

MAX_TAGS: Final = 1_000
"""Maximum number of tags in a query."""

_KNOWN: Final = ("query", "top_k", "floor", "mix", "include_private", "include_tags", "exclude_tags")


def question(given: Any, defaults: KnowledgeSettings) -> SnippetQuery:
    """The question that decoded arguments ask. Numbers out of their bounds are put on the bound.

    Raises:
        Unanswered: `invalid_params`, with words that name the argument.
    """
    if not isinstance(given, Mapping):
        raise _invalid("the arguments are no object that can be read")
    unknown = [str(key) for key in given if key not in _KNOWN]
    if unknown:
        count = "an argument is" if len(unknown) == 1 else f"{len(unknown)} arguments are"
        raise _invalid(f"{count} unknown; known are {', '.join(_KNOWN)}")
    query = given.get("query")
    if not isinstance(query, str) or not is_visible(query):
        raise _invalid("query must be a non-empty text")
    return SnippetQuery(
        query=query.strip()[:MAX_QUERY_LENGTH],
        top_k=int(_number(given, "top_k", defaults.top_k, 1, MAX_SNIPPETS, whole=True)),
        floor=_number(given, "floor", defaults.floor, 0, 1),
        mix=_number(given, "mix", defaults.mix, 0, 1),
        min_floor=defaults.min_floor,
        include_private=_flag(given, "include_private"),
        include_tags=_tags(given, "include_tags"),
        exclude_tags=_tags(given, "exclude_tags"),
    )


def _number(
    given: Mapping[str, Any], key: str, default: float, least: float, most: float, *, whole: bool = False
) -> float:
    value = given.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid(f"{key} must be a number from {least:g} to {most:g}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _invalid(f"{key} must be a number from {least:g} to {most:g}")
    bounded = min(max(value, least), most)  # before anything is reckoned with it: it may have hundreds of digits
    if whole and bounded != int(bounded):
        raise _invalid(f"{key} must be an integer from {least:g} to {most:g}")
    return bounded


def _flag(given: Mapping[str, Any], key: str) -> bool:
    value = given.get(key)
    if value is not None and not isinstance(value, bool):
        raise _invalid(f"{key} must be true or false")
    return bool(value)


def _tags(given: Mapping[str, Any], key: str) -> frozenset[str]:
    value = given.get(key)
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise _invalid(f"{key} must be a list of texts")
    if len(value) > MAX_TAGS:
        raise _invalid(f"{key} has more than {MAX_TAGS} tags")
    return frozenset(value)


def _invalid(words: str) -> RetrievalError:
    return RetrievalError(ErrorCode.INVALID_PARAMS, words)


_CANDIDATES_PER_SNIPPET: Final = 3
_REHEARSED: Final = "what is known"
_LOCAL: Final = Scope(owner="")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalResult:
    """Snippets, the most similar first; or the reason why there are none.

    `metrics` are how the answer came about; nothing in it is content.
    """

    snippets: tuple[Snippet, ...]
    reason: str
    metrics: Mapping[str, Any]


class Retrieval:
    """Asks each table by itself, those of a source without a share not at all, and merges what they give."""

    def __init__(
        self,
        embed: Callable[[str], Awaitable[tuple[str, Embedding]]],
        nearest: Callable[[Table, Embedding, Scope, int], Awaitable[list[SnippetCandidate]]],
        settings: KnowledgeSettings,
    ) -> None:
        """`embed` returns the provider and the vector of a question; `nearest` is `KnowledgePort.nearest`.

        `settings` may be replaced between queries; only `shared` stays as it is.
        """
        self._embed = embed
        self._nearest = nearest
        self.settings = settings
        self._shared = settings.shared

    async def rehearse(self) -> None:
        """Have all loaded that a question needs; what cannot be had now is left to the question."""
        with contextlib.suppress(EmbedderUnavailableError, AnalyticsUnavailableError):
            _, embedding = await self._embed(_REHEARSED)
            for table in Table:
                await self._nearest(table, embedding, _LOCAL, 1)

    async def answer(self, asked: SnippetQuery, owner: str) -> RetrievalResult:
        """The answer for a principal, by its keyed hash.

        Raises:
            Unanswered: the embedder or the store cannot be had.
        """
        begun, settings = time.perf_counter(), self.settings
        try:
            provider, embedding = await self._embed(asked.query)
        except EmbedderUnavailableError as error:
            _, _, fix = str(error).partition(" — fix: ")
            message = f"the embedder is unavailable — fix: {fix.partition(';')[0] or 'try again later'}"
            raise RetrievalError(ErrorCode.EMBEDDER_UNAVAILABLE, message) from error
        scope = Scope(
            owner=None if self._shared else owner,
            include_private=asked.include_private,
            include_tags=asked.include_tags,
            exclude_tags=asked.exclude_tags,
        )
        most = min(_CANDIDATES_PER_SNIPPET * asked.top_k, settings.max_candidates_per_source)
        wanted = [table for table in Table if (asked.wants_graph if table.is_graph else asked.wants_thoughts)]
        try:
            found = [await self._nearest(table, embedding, scope, most) for table in wanted]
        except AnalyticsUnavailableError as error:
            raise RetrievalError(
                ErrorCode.DB_ERROR, "the knowledge store does not answer now; ask again later"
            ) from error
        candidates = [each for some in found for each in some]
        thoughts = [each for each in candidates if not each.table.is_graph]
        graph = [each for each in candidates if each.table.is_graph]
        snippets, floor_used = selected(asked, thoughts, graph)
        reason = "" if snippets else "floor_excluded_all" if candidates else "no_candidates"
        metrics = {
            "provider": provider,
            "model": embedding.model,
            "dim": embedding.dimensions,
            "k_req": asked.top_k,
            "k_ret": len(snippets),
            "kg_candidates": len(graph),
            "thought_candidates": len(thoughts),
            "floor": asked.floor,
            "floor_used": floor_used,
            "latency_ms": round((time.perf_counter() - begun) * 1000),
        }
        return RetrievalResult(snippets=tuple(snippets), reason=reason, metrics=metrics)


_EMBEDDING_CLOSING_SECONDS: Final = 0.5
_log: Final = logging.getLogger("riglm.knowledge")


class QuestionEmbedder:
    """Embeds on the thread that prediction uses, before all background work."""

    def __init__(
        self, worker: Worker, make: Callable[[], Embedders], *, seconds: float, dimensions: int | None = None
    ) -> None:
        """`make` runs on the worker, at the first question, and a question waits no longer than `seconds`.

        `dimensions` are the model's expected dimensions; a warning is logged if they differ.
        """
        self._worker = worker
        self._make = make
        self._seconds = seconds
        self._expected = dimensions
        self._embedders: Embedders | None = None
        self._closed = threading.Event()

    async def __call__(self, text: str) -> tuple[str, Embedding]:
        """Return who made the vector of a question, and the vector.

        Raises:
            EmbedderUnavailableError: the model does not answer, or not in time; nothing else answers in its place.
        """
        asked = asyncio.wrap_future(self._worker.submit(lambda: self._embedded(text), Urgency.AWAITED))
        try:
            return await asyncio.wait_for(asked, self._seconds)
        except TimeoutError:
            raise EmbedderUnavailableError("the model does not answer in time") from None
        except asyncio.CancelledError:
            if asked.cancelled() and self._closed.is_set():  # it is the worker that gave it up, not the client
                raise EmbedderUnavailableError("riglm ends") from None
            raise

    async def close(self) -> None:
        """Close the model within the timeout."""
        self._closed.set()
        if self._embedders is not None:
            always = self._embedders.always
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EMBEDDING_CLOSING_SECONDS):
                    await asyncio.to_thread(always.__exit__, None, None, None)

    def _embedded(self, text: str) -> tuple[str, Embedding]:
        chosen = self._opened()
        rows = chosen.embed([text])
        status = chosen.status()
        if rows.shape != (1, status.dimensions):
            raise EmbedderUnavailableError("another model was loaded meanwhile")
        if self._expected not in (None, status.dimensions):
            _log.warning(
                "knowledge.dimensions is not what the model has, which counts",
                extra={"configured": self._expected, "dim": status.dimensions},
            )
            self._expected = None
        return status.actual_provider, Embedding(model=chosen.model, vector=rows[0])

    def _opened(self) -> EmbedderPort:
        if self._closed.is_set():
            raise EmbedderUnavailableError("riglm ends")
        if self._embedders is None:
            self._embedders = made = self._make()
            made.always.__enter__()
            if self._closed.is_set():  # it was closed while it was still opening
                made.always.__exit__(None, None, None)
        return self._embedders.chosen
