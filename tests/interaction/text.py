"""JSON as text: the exact bytes of a message's members, and messages made from exact bytes.

An oracle of its own: nothing here is shared with riglm, and nothing is ever parsed and written again.
"""

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # what json itself reads texts with
from typing import Any

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


class Malformed(ValueError):
    """The text is not the JSON object or array that was expected."""


def members(raw: bytes) -> dict[str, bytes]:
    """The members of an object, each value with the very bytes it was written in."""
    text = raw.decode("utf-8", "surrogateescape")
    found: dict[str, bytes] = {}
    at = _expect(text, _skip(text, 0), "{")
    if text[at : at + 1] == "}":
        return found
    while True:
        at = _expect(text, at, '"', keep_space=True)
        key, at = scanstring(text, at)
        at = _expect(text, _skip(text, at), ":")
        end = _end_of_value(text, at)
        found[key] = text[at:end].encode("utf-8", "surrogateescape")
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            return found
        at = _expect(text, at, ",")


def elements(raw: bytes) -> list[bytes]:
    """The elements of an array, each with the very bytes it was written in."""
    text = raw.decode("utf-8", "surrogateescape")
    found: list[bytes] = []
    at = _expect(text, _skip(text, 0), "[")
    if text[at : at + 1] == "]":
        return found
    while True:
        end = _end_of_value(text, at)
        found.append(text[at:end].encode("utf-8", "surrogateescape"))
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            return found
        at = _expect(text, at, ",")


def at_path(raw: bytes, *path: str) -> bytes:
    """The bytes of the value at a path of member names."""
    for name in path:
        raw = members(raw)[name]
    return raw


def value(raw: bytes) -> Any:
    """The value that the text means; lone surrogates are kept."""
    return json.loads(raw.decode("utf-8", "surrogateescape"))


def dump(data: Any) -> bytes:
    """ASCII JSON for a value, or the bytes themselves when they are JSON already."""
    return data if isinstance(data, bytes) else json.dumps(data, separators=(",", ":")).encode()


def request(identifier: Any, method: str, params: Any = None) -> bytes:
    """A request line without its newline."""
    tail = b"" if params is None else b',"params":' + dump(params)
    return b'{"jsonrpc":"2.0","id":' + dump(identifier) + b',"method":' + dump(method) + tail + b"}"


def notification(method: str, params: Any = None) -> bytes:
    """A notification line without its newline."""
    tail = b"" if params is None else b',"params":' + dump(params)
    return b'{"jsonrpc":"2.0","method":' + dump(method) + tail + b"}"


def response(identifier: Any, result: Any) -> bytes:
    """A response line without its newline."""
    return b'{"jsonrpc":"2.0","id":' + dump(identifier) + b',"result":' + dump(result) + b"}"


def failure(identifier: Any, code: int, message: str, data: Any = None) -> bytes:
    """An error response line without its newline."""
    tail = b"" if data is None else b',"data":' + dump(data)
    error = b'{"code":' + dump(code) + b',"message":' + dump(message) + tail + b"}"
    return b'{"jsonrpc":"2.0","id":' + dump(identifier) + b',"error":' + error + b"}"


def merged(first: bytes, second: bytes) -> bytes:
    """An object that holds the members of both, in order, byte for byte."""
    inner = [text for text in (first.strip()[1:-1].strip(), second.strip()[1:-1].strip()) if text]
    return b"{" + b",".join(inner) + b"}"


def _skip(text: str, at: int) -> int:
    matched = _SPACE.match(text, at)
    return matched.end() if matched else at


def _expect(text: str, at: int, character: str, *, keep_space: bool = False) -> int:
    if text[at : at + 1] != character:
        raise Malformed(f"expected {character!r} at {at} of {text[max(0, at - 40) : at + 40]!r}")
    return at + 1 if keep_space else _skip(text, at + 1)


def _end_of_value(text: str, at: int) -> int:
    try:
        return _DECODER.raw_decode(text, at)[1]
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no value at {at} of {text[max(0, at - 40) : at + 40]!r}") from error
