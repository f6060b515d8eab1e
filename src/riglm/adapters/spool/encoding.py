"""Records as lines of JSON. A changed shape needs a new version of the spool's files."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.learning import LearnedPair
from riglm.domain.session import Session
from riglm.domain.token_usage import TokenUsage
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.tool_pin import ToolPin
from riglm.ports.analytics import LearnedPairsDeleted, Record, SessionClosed

if TYPE_CHECKING:
    from riglm.domain.prediction import Vector

_TRANSIENT: Final = "reserved"
"""A field of sessions that only the process that serves them needs."""

_read: Final = msgspec.json.Decoder().decode


def encode(record: Record) -> bytes:
    """Return a record as one line of ASCII without its end.

    Raises:
        TypeError: it is no record.
        ValueError: it has a value that cannot be encoded.
    """
    kind = _KINDS.get(type(record))
    if kind is None:
        raise TypeError(f"{type(record).__name__} is no record")
    return _write([kind, _values(record)]).encode("ascii")


def encoded_start(type_: type[Record]) -> bytes:
    """Return what the lines of all records of a type begin with."""
    return f'["{_KINDS[type_]}",'.encode("ascii")


def decode(line: bytes) -> Record:
    """Return the record of a line.

    Raises:
        ValueError: `encode` did not write it.
    """
    try:
        kind, values = _parse(line)
        if kind == _KINDS[LearnedPair]:
            values["vector"] = _to_vector(values["vector"])
        record: Record = msgspec.convert(values, _TYPES[kind])
    except (KeyError, TypeError, AttributeError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"not a record: {error}") from error
    return record


def _parse(line: bytes) -> Any:
    """Parse JSON, with the slower parser what the fast one rejects, such as lone surrogates."""
    try:
        return _read(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return json.loads(line)


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record) if field.name != _TRANSIENT}


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if is_dataclass(value):
        return _values(value)
    if hasattr(value, "ndim"):
        if value.ndim > 1:
            raise ValueError("a vector is not a row of numbers")
        return b64encode(value.astype("<f4").tobytes()).decode("ascii") if value.ndim else value.item()
    raise TypeError(f"{type(value).__name__} cannot be encoded")


# Lone surrogates, which a name may hold, pass as escapes.
_write: Final = json.JSONEncoder(separators=(",", ":"), default=_plain).encode


def _to_vector(text: str) -> "Vector":
    import numpy as np  # noqa: PLC0415  # a process without learned pairs does not load it

    return np.frombuffer(b64decode(text, validate=True), dtype="<f4")


_TYPES: Final[Mapping[str, type[Any]]] = {
    "invocation": ToolInvocation,
    "exposure": Exposure,
    "session": Session,
    "session_closed": SessionClosed,
    "learned_pair": LearnedPair,
    "pairs_forgotten": LearnedPairsDeleted,
    "tool_catalog": StoredToolCatalog,
    "tool_pin": ToolPin,
    "token_usage": TokenUsage,
}
_KINDS: Final = {type_: kind for kind, type_ in _TYPES.items()}
