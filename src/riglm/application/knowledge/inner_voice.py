"""The tool `inner_voice.retrieve`."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from riglm.application.knowledge.definition import NAME, ErrorCode, RetrievalError, refusal, silences_knowledge
from riglm.application.knowledge.retrieval import QuestionEmbedder, Retrieval, RetrievalResult, question
from riglm.application.worker import StoreThread, Worker
from riglm.domain import jsonrpc
from riglm.domain.jsonrpc import Raw
from riglm.domain.knowledge import Embedding, Snippet, SnippetCandidate, Table
from riglm.domain.schemas.filtering import KnowledgeSettings
from riglm.ports.embedder import Embedders
from riglm.ports.knowledge import KnowledgePort, Scope

_DIGITS: Final = 6
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp()


def fields_of(answer: RetrievalResult) -> dict[str, Any]:
    """Return an answer as plain values, by `OUTPUT_SCHEMA`."""
    diagnostics = {name: value for name, value in answer.metrics.items() if name != "floor"}
    diagnostics["floor_used"] = round(diagnostics["floor_used"], _DIGITS)
    diagnostics |= {"reason": answer.reason, "no_results": True} if answer.reason else {}
    return {"snippets": [_snippet(snippet) for snippet in answer.snippets], "diagnostics": diagnostics}


def _snippet(snippet: Snippet) -> dict[str, Any]:
    candidate = snippet.candidate
    at = datetime.fromtimestamp(min(max(candidate.created_at, _EARLIEST), _LATEST), UTC)
    return {
        "id": candidate.table.public_id(candidate.key),
        "table": str(candidate.table),
        "source_type": candidate.table.source_type,
        "origin": str(candidate.origin),
        "trust_tier": str(snippet.trust_tier),
        "created_at": at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "text": snippet.text.encode("utf-8", "replace").decode(),  # JSON has no lone surrogates
        "score": round(min(max(candidate.score, -1.0), 1.0), _DIGITS),
        "content_hash": snippet.content_hash,
        "span_start": 0,
        "span_end": len(snippet.text),
    }


_log: Final = logging.getLogger("riglm.knowledge")
_HEAD_START: Final = 0.2  # seconds for the list that made it known
_INTERNAL: Final = RetrievalError(
    ErrorCode.INTERNAL_ERROR, "the question cannot be answered; the log of riglm says more"
)


class InnerVoice:
    """Answers calls of the tool; nothing is raised, and nothing is opened before `get_ready` or the first of them.

    Each outcome is logged; a silent one only counts, and logs the totals at the end.
    """

    def __init__(
        self, retrieval: Retrieval, closing: Sequence[Callable[[], Awaitable[None]]] = (), *, is_silent: bool = False
    ) -> None:
        """`closing` closes what `retrieval` uses."""
        self._retrieval = retrieval
        self._closing = tuple(closing)
        self._is_silent = is_silent
        self._succeeded = 0
        self._failed = 0
        self._rehearsal: asyncio.Task[None] | None = None

    async def retrieve(self, principal: str, arguments: bytes) -> bytes:
        """Return the raw tool result for raw arguments; `principal` is a keyed hash."""
        try:
            asked = question(jsonrpc.plain(arguments), self._retrieval.settings)
            answer = await self._retrieval.answer(asked, principal)
            content = jsonrpc.encode(fields_of(answer))
        except RetrievalError as error:
            level = logging.INFO if error.code is ErrorCode.INVALID_PARAMS else logging.WARNING
            self._note_failure(level, error.code, error.__cause__)
            return refusal(error)
        except Exception as error:  # noqa: BLE001  # the client always gets an error code that it knows
            where, trace = "", error.__traceback__
            while trace is not None:  # its text may contain user data
                where, trace = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}", trace.tb_next
            self._note_failure(logging.ERROR, ErrorCode.INTERNAL_ERROR, error, where=where)
            return refusal(_INTERNAL)
        self._note_answer(answer)
        text = {"type": "text", "text": content.decode()}
        return jsonrpc.encode({"content": [text], "structuredContent": Raw(content)})

    def _note_answer(self, answer: RetrievalResult) -> None:
        self._succeeded += 1
        if self._is_silent:
            return
        _log.info("%s answered", NAME, extra=answer.metrics)
        if _log.isEnabledFor(logging.DEBUG):
            tables = [str(each.candidate.table) for each in answer.snippets]
            ids = [each.candidate.table.public_id(each.candidate.key) for each in answer.snippets]
            _log.debug("%s gave", NAME, extra={"ids": ids, "tables": tables})

    def _note_failure(self, level: int, code: ErrorCode, cause: BaseException | None, **more: str) -> None:
        self._failed += 1
        if not self._is_silent:
            name = "" if cause is None else type(cause).__name__
            _log.log(level, "%s failed", NAME, extra={"code": str(code), "cause": name, **more})

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
        if self._is_silent and (self._succeeded or self._failed):
            _log.info("%s was called", NAME, extra={"succeeded": self._succeeded, "failed": self._failed})

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
    store = StoreThread(open_store, "riglm-knowledge", timeout_seconds=settings.deadline)

    async def nearest(table: Table, asked: Embedding, scope: Scope, most: int) -> list[SnippetCandidate]:
        return await store.ask(lambda opened: list(opened.nearest(table, asked, scope, most)))

    async def close() -> None:
        await asyncio.to_thread(store.close)

    return InnerVoice(Retrieval(embed, nearest, settings), (embed.close, close), is_silent=is_silent)
