"""The tool as clients see it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from riglm.domain import jsonrpc
from riglm.domain.knowledge import MAX_SNIPPET_LENGTH, Origin, Table, TrustTier

NAME: Final = "inner_voice.retrieve"
"""Name in requests to upstream servers, independent of the name in lists."""

MAX_SNIPPETS: Final = 50
"""Maximum number of snippets."""

_COUNT: Final = {"type": "integer", "minimum": 0}
_NUMBER: Final = {"type": "number"}
_TEXT: Final = {"type": "string"}
_TAGS: Final = {"type": "array", "items": _TEXT, "default": []}


def _closed(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_SNIPPET: Final = _closed(
    {
        "id": _TEXT,
        "table": {"enum": [str(table) for table in Table]},
        "source_type": {"enum": [table.source_type for table in Table]},
        "origin": {"enum": [str(origin) for origin in Origin]},
        "trust_tier": {"enum": [str(tier) for tier in TrustTier]},
        "created_at": {"type": "string", "format": "date-time"},
        "text": {"type": "string", "maxLength": MAX_SNIPPET_LENGTH},
        "score": {"type": "number", "minimum": -1, "maximum": 1},
        "content_hash": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "span_start": _COUNT,
        "span_end": _COUNT,
    },
    "span_start",
    "span_end",
)
_DIAGNOSTICS: Final = _closed(
    {
        "provider": _TEXT,
        "model": _TEXT,
        "dim": _COUNT,
        "k_req": _COUNT,
        "k_ret": _COUNT,
        "kg_candidates": _COUNT,
        "thought_candidates": _COUNT,
        "floor_used": _NUMBER,
        "latency_ms": _COUNT,
        "no_results": {"const": True},
        "reason": {"enum": ["floor_excluded_all", "no_candidates"]},
    },
    "no_results",
    "reason",
)
OUTPUT_SCHEMA: Final = _closed(
    {"snippets": {"type": "array", "items": _SNIPPET, "maxItems": MAX_SNIPPETS}, "diagnostics": _DIAGNOSTICS}
)
"""What every answer with snippets, or with none, is."""

_INPUT_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "query": {**_TEXT, "minLength": 1, "description": "The question, in your own words."},
        "top_k": {"type": "integer", "description": f"How many snippets at most, from 1 to {MAX_SNIPPETS}."},
        "floor": {**_NUMBER, "description": "How similar they must be at least, from 0 to 1."},
        "mix": {**_NUMBER, "description": "The share of the knowledge graph, from 0 (thoughts alone) to 1 (graph)."},
        "include_private": {"type": "boolean", "default": False, "description": "Private thoughts as well."},
        "include_tags": {**_TAGS, "description": "Only what has one of these tags."},
        "exclude_tags": {**_TAGS, "description": "Nothing that has one of these tags."},
    },
    "required": ["query"],
    "additionalProperties": False,
}


def definition(name: str = NAME) -> bytes:
    """The tool's entry in a list, under its name or an alias."""
    return jsonrpc.encode(
        {
            "name": name,
            "description": "Find what is known about something: snippets of thoughts and of the knowledge graph, word "
            "for word, with where each comes from and how far it can be trusted.",
            "inputSchema": _INPUT_SCHEMA,
            "outputSchema": OUTPUT_SCHEMA,
            "annotations": {
                "readOnlyHint": True,
                "idempotentHint": True,
                "destructiveHint": False,
                "openWorldHint": False,
            },
        }
    )


class ErrorCode(StrEnum):
    """The closed list of codes."""

    FEATURE_DISABLED = "feature_disabled"
    INVALID_PARAMS = "invalid_params"
    EMBEDDER_UNAVAILABLE = "embedder_unavailable"
    DB_ERROR = "db_error"
    INTERNAL_ERROR = "internal_error"


class RetrievalError(Exception):
    """Raised when a query has no answer. The text is for the caller and reveals no internals."""

    def __init__(self, code: ErrorCode, words: str) -> None:
        super().__init__(words)
        self.code = code


def refusal(error: RetrievalError) -> bytes:
    """Return a raw tool result with the code and a message."""
    told = jsonrpc.encode({"error": {"code": str(error.code), "message": str(error)}}).decode()
    return b'{"content":[{"type":"text","text":%b}],"isError":true}' % jsonrpc.encode(told)


def silences_knowledge(environment: Mapping[str, str]) -> bool:
    """Return True if `MCP_NO_LOG` is set: nothing about knowledge is logged but counts."""
    return environment.get("MCP_NO_LOG", "").lower() not in {"", "0", "false"}
