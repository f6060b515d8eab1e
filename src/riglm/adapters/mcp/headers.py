"""The `Mcp-*` headers of the modern era, which repeat parts of the body for intermediaries that route by headers."""

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from riglm.domain import jsonrpc, protocol, request_params
from riglm.domain.jsonrpc import Message, Raw

PARAMETER_PREFIX: Final = b"mcp-param-"

_PLAIN: Final = re.compile(r"[\x20-\x7E]*")
_WRAPPED: Final = re.compile(r"=\?base64\?(.*)\?=")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_DECIMAL: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_MAX_DIGITS: Final = 4000
"""Python reads integers of somewhat more digits."""

_SCALARS: Final = frozenset({"string", "integer", "boolean"})
_ONE_SCHEMA: Final = frozenset(
    {
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_MANY_SCHEMAS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED_SCHEMAS: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties"})

AnnotatedParameter = tuple[tuple[str, ...], str, str]
"""A parameter that goes into a header too: its path in the arguments, the header's name, its JSON type."""


def encode_value(value: str) -> str:
    """Return a value as a header carries it: in base64 if it is more than printable ASCII."""
    if _PLAIN.fullmatch(value) and value == value.strip() and not _WRAPPED.fullmatch(value):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'surrogatepass')).decode()}?="


def decode_value(value: str) -> str | None:
    """The value that a header holds; None when its wrapping is broken."""
    wrapped = _WRAPPED.fullmatch(value)
    if wrapped is None:
        return value
    try:
        raw = base64.b64decode(wrapped[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == wrapped[1] else None
    except ValueError:  # no base64, not even ASCII, or no UTF-8
        return None


def annotated(schema: Raw | bytes) -> tuple[AnnotatedParameter, ...]:
    """The parameters of a tool that its schema wants repeated in headers; none when any of the marks is not valid."""
    if b"x-mcp-header" not in bytes(schema):
        return ()
    found: list[AnnotatedParameter] = []
    for path, node in _positions(jsonrpc.plain(schema)):
        if "x-mcp-header" not in node:
            continue
        name, kind = node["x-mcp-header"], node.get("type")
        taken = {header.lower() for _, header, _ in found}
        if not path or not isinstance(name, str) or not _TOKEN.fullmatch(name) or name.lower() in taken:
            return ()
        if not isinstance(kind, str) or kind not in _SCALARS:
            return ()
        found.append((path, name, kind))
    return tuple(found)


def _positions(root: Any) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every schema within a schema, with its path through `properties` alone, or None off that path."""
    todo: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while todo:
        path, node = todo.pop()
        if not isinstance(node, dict):
            continue
        yield path, node
        for key, value in node.items():
            if key == "properties" and isinstance(value, dict):
                todo += [((*path, name) if path is not None else None, inner) for name, inner in value.items()]
            elif key in _ONE_SCHEMA:
                todo.append((None, value))
            elif key in _MANY_SCHEMAS and isinstance(value, list):
                todo += [(None, inner) for inner in value]
            elif key in _NAMED_SCHEMAS and isinstance(value, dict):
                todo += [(None, inner) for inner in value.values()]


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        arguments = arguments.get(key) if isinstance(arguments, dict) else None
    return arguments


def _written(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def for_request(message: Message, version: bytes, parameters_of: tuple[AnnotatedParameter, ...]) -> bytes:
    """The header block that a request of the modern era needs."""
    lines = [b"mcp-protocol-version: %b\r\nmcp-method: %b\r\n" % (version, encode_value(message.method or "").encode())]
    given = request_params.read(message)
    member = protocol.NAME_MEMBER.get(message.method or "")
    name = jsonrpc.text(given.uri if member == "uri" else given.name) if member else None
    if name is not None:
        lines.append(b"mcp-name: %b\r\n" % encode_value(name).encode())
    if parameters_of:
        arguments = jsonrpc.plain(given.arguments)
        for path, header, _ in parameters_of:
            text = _written(_at(arguments, path))
            if text is not None:
                lines.append(b"mcp-param-%b: %b\r\n" % (header.encode(), encode_value(text).encode()))
    return b"".join(lines)


def mismatch(
    message: Message, headers: Mapping[bytes, bytes], parameters_of: tuple[AnnotatedParameter, ...]
) -> str | None:
    """What in the headers disagrees with the body; None when they agree. `headers` have lower-case names."""
    if _decoded(headers.get(b"mcp-method"), wrapped=False) != message.method:
        return "the Mcp-Method header does not match the method of the body"
    given = request_params.read(message)
    member = protocol.NAME_MEMBER.get(message.method or "")
    named = jsonrpc.plain((given.uri if member == "uri" else given.name) or b"null") if member else None
    if named is not None and _decoded(headers.get(b"mcp-name")) != named:
        return f"the Mcp-Name header does not match {member!r} of the body"
    arguments = jsonrpc.plain(given.arguments) if parameters_of else None
    for path, header, kind in parameters_of:
        raw = headers.get(PARAMETER_PREFIX + header.lower().encode())
        text = _written(_at(arguments, path))
        if (raw is None) != (text is None):
            return f"the Mcp-Param-{header} header and the argument {'.'.join(path)!r} must come together"
        if raw is not None and text is not None and not _agree(kind, _at(arguments, path), text, raw):
            return f"the Mcp-Param-{header} header does not match the argument {'.'.join(path)!r}"
    return None


def _decoded(raw: bytes | None, *, wrapped: bool = True) -> str | None:
    if raw is None:
        return None
    value = raw.decode("latin-1")
    return decode_value(value) if wrapped else value


def _agree(kind: str, value: Any, text: str, raw: bytes) -> bool:
    decoded = _decoded(raw)
    if decoded is None:
        return False
    whole = not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    )
    if kind == "integer" and whole and _DECIMAL.fullmatch(decoded):
        digits, _, fraction = decoded.partition(".")
        return not fraction.strip("0") and len(digits) <= _MAX_DIGITS and int(digits) == int(value)
    return decoded == text
