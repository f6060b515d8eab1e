"""Records as plain JSON and back. A changed shape needs a new version of the files, in `segment`."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ErrorKind, Found, ToolInvocation
from riglm.domain.learning import LearnedPair, Teacher
from riglm.domain.session import Client, Era, Method, Session, Transport
from riglm.domain.tool import ToolCatalog
from riglm.ports.analytics import PairsForgotten, Record, SessionClosed

if TYPE_CHECKING:
    from riglm.domain.prediction import Vector

Shape = dict[str, Any]

# Plain ASCII, for a line that nothing in it can end; a lone surrogate, which a name may hold, passes as its escape.
_write: Final = json.JSONEncoder(separators=(",", ":")).encode
_read: Final = msgspec.json.Decoder().decode


def encode(record: Record) -> bytes:
    """A record as one line of ASCII, without its end. Raises `TypeError` or `ValueError` for what is no record."""
    return _write(_shape(record)).encode("ascii")


def decode(line: bytes) -> Record:
    """The record of a line that `encode` wrote. Raises `ValueError` for any other line."""
    try:
        kind, told = _json(line)
        return _FROM[kind](told)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a record: {error}") from error


def _json(line: bytes) -> Any:
    """What the line holds: by the fast decoder, and what that does not take, such as lone surrogates, by json's."""
    try:
        return _read(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return json.loads(line)


def _shape(record: Record) -> tuple[str, Shape]:
    kind, to_shape = _TO.get(type(record), ("", None))
    if to_shape is None:
        raise TypeError(f"{type(record).__name__} is no record")
    return kind, to_shape(record)


def _invocation(call: ToolInvocation) -> Shape:
    return {
        "id": call.id.hex,
        "session_id": call.session_id.hex,
        "tool": call.tool,
        "upstream": call.upstream,
        "timestamp": call.timestamp,
        "duration_ms": call.duration_ms,
        "success": call.success,
        "sequence_number": call.sequence_number,
        "arguments_hash": call.arguments_hash,
        "arguments": call.arguments,
        "error_kind": call.error_kind,
        "error_code": call.error_code,
        "found": call.found,
    }


def _invocation_from(told: Shape) -> ToolInvocation:
    kind = told["error_kind"]
    told["id"] = UUID(told["id"])
    told["session_id"] = UUID(told["session_id"])
    told["error_kind"] = None if kind is None else ErrorKind(kind)
    told["found"] = Found(told["found"])
    told.pop("context_embedding", None)  # always null, in files until version 3
    return ToolInvocation(**told)


def _exposure(exposure: Exposure) -> Shape:
    return {
        "id": exposure.id.hex,
        "session_id": exposure.session_id.hex,
        "timestamp": exposure.timestamp,
        "shown": exposure.shown,
        "hidden": exposure.hidden,
        "predictor": exposure.predictor,
        "reason": exposure.reason,
        "mode": exposure.mode,
        "surface": exposure.surface,
        "tokens_shown": exposure.tokens_shown,
        "tokens_hidden": exposure.tokens_hidden,
        "tokens_own": exposure.tokens_own,
    }


def _exposure_from(told: Shape) -> Exposure:
    return Exposure(
        **{
            **told,
            "id": UUID(told["id"]),
            "session_id": UUID(told["session_id"]),
            "shown": tuple(told["shown"]),
            "hidden": tuple(told["hidden"]),
        }
    )


def _session(session: Session) -> Shape:
    return {
        "id": session.id.hex,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "era": session.era,
        "transport": session.transport,
        "method": session.method,
        "client": [session.client.name, session.client.version],
        "client_id": session.client_id,
        "principal": session.principal,
        "protocol_version": session.protocol_version,
        "keys": session.keys,
        "metadata": session.metadata,
        "tools_available": session.tools_available,
        "sequence": session.sequence,
    }


def _session_from(told: Shape) -> Session:
    name, version = told["client"]
    return Session(
        **{
            **told,
            "id": UUID(told["id"]),
            "era": Era(told["era"]),
            "transport": Transport(told["transport"]),
            "method": Method(told["method"]),
            "client": Client(name=name, version=version),
            "tools_available": tuple(told["tools_available"]),
        }
    )


def _session_closed(closed: SessionClosed) -> Shape:
    return {"session_id": closed.session_id.hex, "ended_at": closed.ended_at}


def _session_closed_from(told: Shape) -> SessionClosed:
    return SessionClosed(session_id=UUID(told["session_id"]), ended_at=told["ended_at"])


def _learned_pair(pair: LearnedPair) -> Shape:
    if pair.vector.ndim != 1:
        raise ValueError("the vector of a learned pair is not a row of numbers")
    taught_by = pair.teacher
    return {
        "id": pair.id.hex,
        "scope": pair.scope,
        "tool": pair.tool,
        "model": pair.model,
        "vector": b64encode(pair.vector.astype("<f4").tobytes()).decode("ascii"),
        "confidence": pair.confidence,
        "uses": pair.uses,
        "updated_at": pair.updated_at,
        "description_hash": pair.description_hash,
        "terms": [int(term) for term in pair.terms],
        "session_id": None if pair.session_id is None else pair.session_id.hex,
        "teacher": None if taught_by is None else [taught_by.client_id, taught_by.client_name, taught_by.principal],
    }


def _learned_pair_from(told: Shape) -> LearnedPair:
    session = told["session_id"]
    return LearnedPair(
        **{
            **told,
            "id": UUID(told["id"]),
            "vector": _vector(told["vector"]),
            "terms": tuple(told["terms"]),
            "session_id": None if session is None else UUID(session),
            "teacher": _teacher_from(told.get("teacher")),  # missing in files of version 1
        }
    )


def _teacher_from(told: list[str] | None) -> Teacher | None:
    if told is None:
        return None
    client_id, client_name, principal = told
    return Teacher(client_id=client_id, client_name=client_name, principal=principal)


def _vector(text: str) -> "Vector":
    import numpy as np  # noqa: PLC0415  # a process that never meets a vector need not load it

    return np.frombuffer(b64decode(text, validate=True), dtype="<f4")


def _pairs_forgotten(forgotten: PairsForgotten) -> Shape:
    return {"ids": [id_.hex for id_ in forgotten.ids]}


def _pairs_forgotten_from(told: Shape) -> PairsForgotten:
    return PairsForgotten(ids=tuple(UUID(id_) for id_ in told["ids"]))


def _tool_catalog(catalog: ToolCatalog) -> Shape:
    return {
        "fingerprint": catalog.fingerprint,
        "variant": catalog.variant,
        "server": catalog.server,
        "capabilities": b64encode(catalog.capabilities).decode("ascii"),
        "instructions": catalog.instructions,
        "tools": b64encode(catalog.tools).decode("ascii"),
        "updated_at": catalog.updated_at,
    }


def _tool_catalog_from(told: Shape) -> ToolCatalog:
    raw = {name: b64decode(told[name], validate=True) for name in ("capabilities", "tools")}
    return ToolCatalog(**{**told, **raw})


_TO: Final[dict[type[Record], tuple[str, Callable[[Any], Shape]]]] = {
    ToolInvocation: ("invocation", _invocation),
    Exposure: ("exposure", _exposure),
    Session: ("session", _session),
    SessionClosed: ("session_closed", _session_closed),
    LearnedPair: ("learned_pair", _learned_pair),
    PairsForgotten: ("pairs_forgotten", _pairs_forgotten),
    ToolCatalog: ("tool_catalog", _tool_catalog),
}

_FROM: Final[dict[str, Callable[[Shape], Record]]] = {
    "invocation": _invocation_from,
    "exposure": _exposure_from,
    "session": _session_from,
    "session_closed": _session_closed_from,
    "learned_pair": _learned_pair_from,
    "pairs_forgotten": _pairs_forgotten_from,
    "tool_catalog": _tool_catalog_from,
}
