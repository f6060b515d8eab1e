"""Answers as they are written."""

from datetime import UTC, datetime
from typing import Any, Final

from riglm.application.knowledge.retrieval import Answer, Diagnostics
from riglm.domain import jsonrpc
from riglm.domain.knowledge.selecting import Snippet

_DIGITS: Final = 6
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp()


def fields_of(answer: Answer) -> dict[str, bytes]:
    """An answer as raw JSON by member, by `OUTPUT_SCHEMA`."""
    return {
        "snippets": jsonrpc.encode([_snippet(snippet) for snippet in answer.snippets]),
        "diagnostics": jsonrpc.encode(_diagnostics(answer.diagnostics)),
    }


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
    """A text as JSON can say it: halves of surrogate pairs that stand alone are replaced."""
    return text.encode("utf-8", "replace").decode()


def _diagnostics(said: Diagnostics) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "provider": said.provider,
        "model": said.model,
        "dim": said.dim,
        "k_req": said.k_req,
        "k_ret": said.k_ret,
        "kg_candidates": said.kg_candidates,
        "thought_candidates": said.thought_candidates,
        "floor_used": round(said.floor_used, _DIGITS),
        "latency_ms": said.latency_ms,
    }
    return {**fields, "no_results": True, "reason": said.reason} if said.reason is not None else fields
