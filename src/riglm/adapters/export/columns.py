"""The columns of what is handed out, with the types that formats with types give them."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from riglm.ports.maintenance import Kind


class Type(Enum):
    """What a column holds."""

    TEXT = auto()
    TIME = auto()
    """Seconds since the epoch as they come; written as a moment in UTC."""
    NUMBER = auto()
    INTEGER = auto()
    FLAG = auto()
    TEXTS = auto()
    NUMBERS = auto()
    INTEGERS = auto()
    OBJECT = auto()


def _texts(*names: str) -> dict[str, Type]:
    return dict.fromkeys(names, Type.TEXT)


COLUMNS: Final[Mapping[Kind, Mapping[str, Type]]] = {
    Kind.SESSIONS: {
        "id": Type.TEXT,
        "started_at": Type.TIME,
        "ended_at": Type.TIME,
        **_texts("era", "transport", "method", "confidence", "client_name", "client_version", "client_id"),
        **_texts("principal", "protocol_version"),
        "keys": Type.OBJECT,
        "metadata": Type.OBJECT,
        "tools_available": Type.TEXTS,
    },
    Kind.INVOCATIONS: {
        **_texts("id", "session_id", "tool", "upstream"),
        "timestamp": Type.TIME,
        "duration_ms": Type.NUMBER,
        "success": Type.FLAG,
        "sequence_number": Type.INTEGER,
        **_texts("arguments_hash", "arguments", "error_kind"),
        "error_code": Type.INTEGER,
        "found": Type.TEXT,
    },
    Kind.EXPOSURES: {
        **_texts("id", "session_id"),
        "timestamp": Type.TIME,
        "shown": Type.TEXTS,
        "hidden": Type.TEXTS,
        **_texts("predictor", "reason", "mode", "surface"),
        "tokens_shown": Type.INTEGER,
        "tokens_hidden": Type.INTEGER,
        "tokens_own": Type.INTEGER,
    },
    Kind.COOCCURRENCES: {
        **_texts("tool_a", "tool_b"),
        "count": Type.INTEGER,
        "average_distance": Type.NUMBER,
        "last_updated": Type.TIME,
    },
    Kind.LEARNED_PAIRS: {
        **_texts("id", "scope", "tool", "model"),
        "dimensions": Type.INTEGER,
        "vector": Type.NUMBERS,
        "confidence": Type.NUMBER,
        "uses": Type.INTEGER,
        "updated_at": Type.TIME,
        "description_hash": Type.TEXT,
        "terms": Type.INTEGERS,
    },
    Kind.OVERRIDES: {
        **_texts("id", "kind", "tool", "scope", "key"),
        "created_at": Type.TIME,
        "expires_at": Type.TIME,
        "reason": Type.TEXT,
    },
    Kind.WARM_SETS: {
        **_texts("principal", "client", "profile"),
        "evidence": Type.INTEGER,
        "probabilities": Type.OBJECT,
        "requests": Type.NUMBER,
        "distinct_tools": Type.NUMBER,
        "created_at": Type.TIME,
    },
}
"""By kind, in the order in which they are written."""
