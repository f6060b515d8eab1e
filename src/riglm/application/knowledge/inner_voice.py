"""The tool `inner_voice.retrieve`."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from riglm.application.knowledge.definition import NAME, ErrorCode, RetrievalError, refusal, silences_knowledge
from riglm.application.knowledge.retrieval import (
    Diagnostics,
    LazyVectorStore,
    QuestionEmbedder,
    Retrieval,
    RetrievalResult,
    question,
)
from riglm.application.worker import Worker
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.knowledge import Snippet
from riglm.domain.schemas.filtering import KnowledgeSettings
from riglm.ports.embedder import Embedders
from riglm.ports.knowledge import KnowledgePort

_DIGITS: Final = 6
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp()


def fields_of(answer: RetrievalResult) -> dict[str, Any]:
    """Return an answer as plain values, by `OUTPUT_SCHEMA`."""
    snippets = [_snippet(snippet) for snippet in answer.snippets]
    return {"snippets": snippets, "diagnostics": _diagnostics(answer.diagnostics)}


def _snippet(snippet: Snippet) -> dict[str, Any]:
    candidate, cut = snippet.candidate, snippet.capped
    at = datetime.fromtimestamp(min(max(candidate.created_at, _EARLIEST), _LATEST), UTC)
    return {
        "id": candidate.table.public_id(candidate.key),
        "table": str(candidate.table),
        "source_type": candidate.table.source_type,
        "origin": str(candidate.origin),
        "trust_tier": str(snippet.trust_tier),
        "created_at": at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "text": _in_unicode(cut.text),
        "score": round(min(max(candidate.score, -1.0), 1.0), _DIGITS),
        "content_hash": snippet.content_hash,
        "span_start": cut.start,
        "span_end": cut.end,
    }


def _in_unicode(text: str) -> str:
    """Return a text that JSON can encode: lone surrogates are replaced."""
    return text.encode("utf-8", "replace").decode()


def _diagnostics(said: Diagnostics) -> dict[str, Any]:
    fields = asdict(said)
    del fields["floor"]
    fields["floor_used"] = round(said.floor_used, _DIGITS)
    if said.reason is None:
        del fields["reason"]
        return fields
    return {**fields, "no_results": True}


_log: Final = logging.getLogger("riglm.knowledge")


class QueryLog:
    """Logs the outcome of each query; a silent log only counts, and logs the totals at the end."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self.answered_count = 0
        self.failed_count = 0

    def answered(self, answer: RetrievalResult) -> None:
        """A question was answered, with snippets or without any."""
        self.answered_count += 1
        if self._is_silent:
            return
        metrics = asdict(answer.diagnostics)
        del metrics["reason"]
        _log.info("%s answered", NAME, extra=metrics)
        if _log.isEnabledFor(logging.DEBUG):
            tables = [str(each.candidate.table) for each in answer.snippets]
            ids = [each.candidate.table.public_id(each.candidate.key) for each in answer.snippets]
            _log.debug("%s gave", NAME, extra={"ids": ids, "tables": tables})

    def refused(self, error: RetrievalError) -> None:
        """A question was refused, or could not be answered by what it needs."""
        self.failed_count += 1
        if not self._is_silent:
            level = logging.INFO if error.code is ErrorCode.INVALID_PARAMS else logging.WARNING
            cause = "" if error.__cause__ is None else type(error.__cause__).__name__
            _log.log(level, "%s failed", NAME, extra={"code": str(error.code), "cause": cause})

    def broke(self, error: BaseException) -> None:
        """Log an internal error, without its text, which may contain user data."""
        self.failed_count += 1
        if not self._is_silent:
            where, trace = "", error.__traceback__
            while trace is not None:
                where, trace = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}", trace.tb_next
            told = {"code": str(ErrorCode.INTERNAL_ERROR), "cause": type(error).__name__, "where": where}
            _log.error("%s failed", NAME, extra=told)

    def end(self) -> None:
        """Nothing is asked any more."""
        if self._is_silent and (self.answered_count or self.failed_count):
            counts = {"succeeded": self.answered_count, "failed": self.failed_count}
            _log.info("%s was called", NAME, extra=counts)


_HEAD_START: Final = 0.2  # seconds for the list that made it known
_INTERNAL: Final = RetrievalError(
    ErrorCode.INTERNAL_ERROR, "the question cannot be answered; the log of riglm says more"
)


class InnerVoice:
    """Answers calls of the tool; nothing is raised, and nothing is opened before `get_ready` or the first of them."""

    def __init__(
        self, retrieval: Retrieval, journal: QueryLog, closing: Sequence[Callable[[], Awaitable[None]]] = ()
    ) -> None:
        """`closing` closes what `retrieval` uses."""
        self._retrieval = retrieval
        self._journal = journal
        self._closing = tuple(closing)
        self._rehearsal: asyncio.Task[None] | None = None

    async def retrieve(self, principal: str, arguments: bytes) -> bytes:
        """Return the raw tool result for raw arguments; `principal` is a keyed hash."""
        try:
            asked = question(jsonrpc.plain(arguments), self._retrieval.settings)
            answer = await self._retrieval.answer(asked, principal)
            content = jsonrpc.encode(fields_of(answer))
        except RetrievalError as error:
            self._journal.refused(error)
            return refusal(error)
        except Exception as error:  # noqa: BLE001  # the client always gets an error code that it knows
            self._journal.broke(error)
            return refusal(_INTERNAL)
        self._journal.answered(answer)
        text = {"type": "text", "text": content.decode()}
        return jsonrpc.encode({"content": [text], "structuredContent": Raw(content)})

    def get_ready(self) -> None:
        """Begin to load what the first question needs, so that it need not wait; from the event loop, at any time."""
        if self._rehearsal is None:
            self._rehearsal = asyncio.create_task(self._rehearse())

    def follow(self, settings: KnowledgeSettings) -> None:
        """Answer the next question by changed settings."""
        self._retrieval.settings = settings

    async def close(self) -> None:
        """Close the model and the store."""
        if self._rehearsal is not None:
            self._rehearsal.cancel()
            await asyncio.wait({self._rehearsal})
        for close in self._closing:
            await close()
        self._journal.end()

    async def _rehearse(self) -> None:
        await asyncio.sleep(_HEAD_START)
        with contextlib.suppress(Exception):  # the first query fails the same way and reports it
            await self._retrieval.rehearse()


def build_inner_voice(
    settings: KnowledgeSettings,
    worker: Worker,
    embedders: Callable[[], Embedders],
    open_store: Callable[[], KnowledgePort],
    *,
    environment: Mapping[str, str],
) -> InnerVoice:
    """A tool that has opened nothing yet; `embedders` are made on the worker."""
    is_silent = silences_knowledge(environment)
    expected = None if is_silent else settings.dimensions
    embed = QuestionEmbedder(worker, embedders, seconds=settings.deadline, dimensions=expected)
    store = LazyVectorStore(open_store, seconds=settings.deadline)
    retrieval = Retrieval(embed, store.nearest, settings)
    return InnerVoice(retrieval, QueryLog(is_silent=is_silent), (embed.close, store.close))
