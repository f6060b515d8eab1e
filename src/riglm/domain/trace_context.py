"""Trace context as MCP carries it: `traceparent`, `tracestate` and `baggage` in a request's `_meta`."""

from collections.abc import Mapping
from typing import Final

from riglm.domain import jsonrpc, request_params
from riglm.domain.jsonrpc import Message, Raw

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
_READ: Final = (PARENT, STATE)


def read(message: Message) -> dict[str, str]:
    """Return a request's trace context; empty if it has none."""
    if b"traceparent" not in message.line:
        return {}
    meta = request_params.read(message).meta
    fields = jsonrpc.members(meta) if meta else {}
    found = {name: jsonrpc.text(fields.get(name)) for name in _READ}
    return {name: value for name, value in found.items() if value is not None}


def with_context(message: Message, carrier: Mapping[str, str]) -> Message:
    """The request with another trace context in its `_meta`; all the rest is kept as it is, baggage as well.

    A state without its parent means nothing: one that is not in `carrier` is taken out. What has no place for a context
    stays without.
    """
    params = bytes(message.params)
    if PARENT not in carrier or params[:1] not in (b"", b"{"):
        return message
    fields = jsonrpc.members(params) if params else {}
    raw = bytes(fields.get("_meta", b"{}"))
    if raw[:1] != b"{":
        return message
    meta = jsonrpc.members(raw)
    for name in _READ:
        if name in carrier:
            meta[name] = Raw(jsonrpc.encode(carrier[name]))
        else:
            meta.pop(name, None)
    fields["_meta"] = Raw(jsonrpc.join_object(meta))
    return message.replace(params=jsonrpc.join_object(fields))
