"""The few members of a request's params that riglm reads, and the trace context in its `_meta`."""

import sys
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from riglm.domain import jsonrpc, protocol, rawjson
from riglm.domain.jsonrpc import Message, Raw
from riglm.domain.rawjson import UNREADABLE
from riglm.domain.session import ClientInfo

_NONE: Final = Raw()


class RequestParams(msgspec.Struct):
    """What a request names, with which arguments, and what it says in `_meta`; raw JSON, empty when absent."""

    name: Raw = _NONE
    uri: Raw = _NONE
    arguments: Raw = _NONE
    meta: Raw = msgspec.field(default=_NONE, name="_meta")


_decode = msgspec.json.Decoder(RequestParams).decode
_EMPTY: Final = RequestParams()


def read(message: Message) -> RequestParams:
    """Return the parameters of a message, which are parsed once; empty ones if it has none or they are no object."""
    found: RequestParams | None = message.parsed
    if found is None:
        found = message.parsed = _parse(message.params) if message.params else _EMPTY
    return found


def tool_name(params: RequestParams) -> str | None:
    """Return the name in the params of a call; None if it is no text."""
    raw = bytes(params.name)
    return _text(raw) if len(raw) <= _MAX_KNOWN_NAME else jsonrpc.text(raw)


_MAX_KNOWN_NAME: Final = 256
"""Maximum size in bytes of a raw name that is kept decoded, since it will be called again."""


@lru_cache(maxsize=1024)
def _text(raw: bytes) -> str | None:
    name = jsonrpc.text(raw)
    return None if name is None else sys.intern(name)  # sessions keep the names of their calls


def _parse(params: Raw) -> RequestParams:
    try:
        return _decode(params)
    except UNREADABLE:
        whole = bytes(params)
    fixed = rawjson.repaired(whole)
    try:
        found = _decode(fixed)
    except UNREADABLE:
        return _EMPTY
    parts = (found.name, found.uri, found.arguments, found.meta)
    return RequestParams(*(rawjson.original(part, fixed, whole) if part else _NONE for part in parts))


class RequestEnvelope(msgspec.Struct, frozen=True):
    """What every modern request contains of its client; `version` is None if it is no string."""

    version: str | None
    client: ClientInfo
    complete: bool
    meta: Raw


def envelope(message: Message) -> RequestEnvelope | None:
    """The envelope of a request, None when it carries none and so belongs to the handshake era."""
    raw = read(message).meta
    if not raw:
        return None
    meta = bytes(raw)
    if b"protocolVersion" not in meta:  # the rest of the name may be escaped: some writers escape slashes
        return None
    return _envelope_of(meta) if len(meta) <= _MAX_KNOWN else _envelope_of.__wrapped__(meta)


_MAX_KNOWN: Final = 2048
"""Maximum size in bytes of a `_meta` whose envelope is kept for the next request."""


@lru_cache(maxsize=64)
def _envelope_of(meta: bytes) -> RequestEnvelope | None:
    """Return the envelope in a raw `_meta`, which most clients send unchanged."""
    fields = jsonrpc.members(meta)
    version = fields.get(protocol.META_VERSION)
    if version is None:
        return None
    client = _client_info(fields.get(protocol.META_CLIENT))
    return RequestEnvelope(jsonrpc.text(version), client, protocol.META_CAPABILITIES in fields, Raw(meta))


def client_of(initialize: Message) -> tuple[ClientInfo, str]:
    """Who opens a handshake, and with which protocol revision."""
    fields = jsonrpc.members(initialize.params)
    return _client_info(fields.get("clientInfo")), jsonrpc.text(fields.get("protocolVersion")) or ""


def _client_info(raw: Raw | None) -> ClientInfo:
    """Return the client in a raw `clientInfo`; empty where it names none."""
    fields = jsonrpc.members(raw) if raw else {}
    return ClientInfo(name=jsonrpc.text(fields.get("name")) or "", version=jsonrpc.text(fields.get("version")) or "")


def cancelled_id(message: Message) -> bytes | None:
    """The key of the request that a `notifications/cancelled` names."""
    raw = bytes(jsonrpc.members(message.params).get("requestId", b""))
    return jsonrpc.id_key(raw) if raw else None


def disguised_key(message: Message) -> str | None:
    """Return a key that a server could mistake for one that riglm reads (such as `Method` or `Name`), or None."""
    keys = mistakable_keys(jsonrpc.members(message.line), ("id", "method", "params"))
    if not keys and message.params:
        keys = mistakable_keys(jsonrpc.members(message.params), ("name",))
    return keys[0] if keys else None


def mistakable_keys(keys: Iterable[str], read: Collection[str]) -> list[str]:
    """Return the keys that differ from one of `read`, which are in lower case, only in case."""
    return [key for key in keys if key not in read and key.casefold() in read]


def with_name(message: Message, path: tuple[str, ...], raw: Raw, name: str) -> Message:
    """Return a request with another name at `path` in its params, in place of the raw one; all the rest is kept."""
    given, line = read(message), message.line
    arguments, meta = bytes(given.arguments), bytes(given.meta)
    if line.count(b'"name"') - arguments.count(b'"name"') - meta.count(b'"name"') == 1:
        for colon in (b":", b": "):
            old = b'"name"%b%b' % (colon, raw)
            if line.count(old) == 1 and old not in arguments and old not in meta:
                new = b'"name"%b%b' % (colon, jsonrpc.encode(name))
                params = Raw(bytes(message.params).replace(old, new))
                return Message(line.replace(old, new), message.id, message.method, params)
    return message.replace(params=jsonrpc.with_member(message.params, path, jsonrpc.encode(name)))


TRACE_PARENT: Final = "traceparent"
TRACE_STATE: Final = "tracestate"
_TRACE_FIELDS: Final = (TRACE_PARENT, TRACE_STATE)


def read_trace_context(message: Message) -> dict[str, str]:
    """Return a request's trace context; empty if it has none."""
    if b"traceparent" not in message.line:
        return {}
    meta = read(message).meta
    fields = jsonrpc.members(meta) if meta else {}
    found = {name: jsonrpc.text(fields.get(name)) for name in _TRACE_FIELDS}
    return {name: value for name, value in found.items() if value is not None}


def with_trace_context(message: Message, carrier: Mapping[str, str]) -> Message:
    """The request with another trace context in its `_meta`; all the rest is kept as it is, baggage as well.

    A state without its parent means nothing: one that is not in `carrier` is taken out. What has no place for a context
    stays without.
    """
    params = bytes(message.params)
    if TRACE_PARENT not in carrier or params[:1] not in (b"", b"{"):
        return message
    fields = jsonrpc.members(params) if params else {}
    raw = bytes(fields.get("_meta", b"{}"))
    if raw[:1] != b"{":
        return message
    meta = jsonrpc.members(raw)
    for name in _TRACE_FIELDS:
        if name in carrier:
            meta[name] = Raw(jsonrpc.encode(carrier[name]))
        else:
            meta.pop(name, None)
    fields["_meta"] = Raw(jsonrpc.join_object(meta))
    return message.replace(params=jsonrpc.join_object(fields))
