"""JSON-RPC messages that keep their payloads as the bytes they came as.

Only the envelope is decoded: id, method, and where params, result and error lie. Params, results and errors stay raw
JSON, so what riglm does not own passes byte for byte, including additions of newer protocol revisions.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from riglm.domain import rawjson
from riglm.domain.rawjson import UNREADABLE, Raw, elements, encode, join_object, members, plain, text, with_member

# code that reads messages also reads their content
__all__ = ["Raw", "elements", "encode", "join_object", "members", "plain", "text", "with_member"]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
UPSTREAM_UNAVAILABLE: Final = -32000
REQUEST_TIMEOUT: Final = -32001
HEADER_MISMATCH: Final = -32020
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022

_NONE: Final = Raw()


class MalformedMessageError(ValueError):
    """Bytes that are no JSON-RPC message; `code` is the JSON-RPC error to answer with, `id` the raw id if readable."""

    def __init__(self, code: int, text: str, message_id: bytes | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.id = message_id


class _Envelope(msgspec.Struct):
    id: Raw = _NONE
    method: str | None = None
    params: Raw = _NONE
    result: Raw = _NONE
    error: Raw = _NONE


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


class Message:
    """One JSON-RPC message.

    `line` is the whole message as it came, without a newline. `id` is the raw JSON of the id, None when there is none;
    `params`, `result` and `error` are raw JSON, empty when absent.
    """

    __slots__ = ("error", "id", "is_tool_error", "line", "method", "next_cursor", "params", "parsed", "result")

    def __init__(
        self,
        line: bytes,
        message_id: bytes | None,
        method: str | None,
        params: Raw = _NONE,
        result: Raw = _NONE,
        error: Raw = _NONE,
    ) -> None:
        self.line = line
        self.id = message_id
        self.method = method
        self.params = params
        self.result = result
        self.error = error
        self.parsed: Any = None
        """The params as `request_params.read` parsed them; None before."""
        self.is_tool_error: bool | None = None
        """The result of `is_tool_error`; None before."""
        self.next_cursor: bytes | None = None
        """The result of `next_cursor`; None before."""

    def __repr__(self) -> str:
        return f"Message(id={self.id!r}, method={self.method!r}, {len(self.line)} bytes)"

    @property
    def is_request(self) -> bool:
        """Whether an answer is owed."""
        return self.method is not None and self.id is not None

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.method is None

    def replace(self, **members: bytes) -> "Message":
        """The same message with some top-level members replaced by other raw JSON; all the rest is kept, in order."""
        line = None
        if self.id is not None and members.keys() == {"id"}:
            line = rawjson.with_id(self.line, self.id, members["id"], is_response=self.method is None)
        if line is not None:
            message = Message(line, members["id"], self.method, self.params, self.result, self.error)
            message.parsed, message.is_tool_error = self.parsed, self.is_tool_error
            message.next_cursor = self.next_cursor
            return message
        fields = rawjson.strict_members(self.line)
        for name, value in members.items():
            fields[name] = Raw(value)
        return decode(join_object(fields))


def decode(line: bytes) -> Message:
    """Read one message.

    A message on several lines is put on one, since pipes and event streams carry one message per line. Lone surrogate
    escapes, which some JSON writers produce, are tolerated: they are kept unchanged, and only values
    that riglm itself reads show U+FFFD in their place.

    Raises:
        Malformed: it is no JSON, or JSON that is no single JSON-RPC message, or a request that says twice what riglm
            reads, and so could mean one thing here and another thing elsewhere.
    """
    try:
        envelope = _decode_envelope(line)
    except UNREADABLE as error:
        envelope = _second_reading(line, error)
    message_id = bytes(envelope.id) if envelope.id else None
    if message_id is not None and message_id[0] not in _ID_STARTS:
        if message_id == b"null" and (envelope.method or "").startswith("notifications/"):
            fields = rawjson.strict_members(line)
            del fields["id"]
            return decode(join_object(fields))  # some servers write members without a value as null
        unread = message_id == b"null" and envelope.method is None  # how one answers what had no readable id
        if not unread:
            raise MalformedMessageError(INVALID_REQUEST, "Invalid request: the id must be a string or a number")
    if envelope.method is None:
        if message_id is None and bytes(envelope.error).startswith(b"{") and b'"jsonrpc"' in line:
            message_id = b"null"  # MCP does not require the id of an error
        if message_id is None or not (envelope.result or envelope.error):
            raise MalformedMessageError(INVALID_REQUEST, "Invalid request: neither a method nor a result", message_id)
    else:
        _check_asked(line, envelope.params, message_id)
    if b"\n" in line or b"\r" in line:  # between tokens only, now that it was read: within strings they are escaped
        return decode(line.replace(b"\n", b" ").replace(b"\r", b" "))
    failure = envelope.error if bytes(envelope.error) != b"null" else _NONE  # some servers send both members
    return Message(line, message_id, envelope.method, envelope.params, envelope.result, failure)


_ID_STARTS: Final = frozenset(b'"-0123456789')
_STRUCTURED: Final = (b"{", b"[", b"n")  # null params occur in the field and mean none
_TOP_LEVEL: Final = (b'"id"', b'"method"', b'"params"')
_IN_PARAMS: Final = (b'"name"', b'"uri"', b'"arguments"', b'"_meta"')


def _check_asked(line: bytes, params: Raw, message_id: bytes | None) -> None:
    """Refuse a request or notification whose parts are ambiguous."""
    if params and bytes(memoryview(params)[:1]) not in _STRUCTURED:
        raise MalformedMessageError(
            INVALID_REQUEST, "Invalid request: params must be an object or an array", message_id
        )
    if len(line) > rawjson.SLICE or b"\\u00" in line or (_may_repeat(line.count) and _may_repeat_outside(line, params)):
        twice = repeated(line, _TOP_LEVEL)
        if twice is None and (suspects := _suspects(line, _IN_PARAMS)):
            twice = repeated(bytes(params), tuple(suspects))
        if twice:
            raise MalformedMessageError(INVALID_REQUEST, f"Invalid request: {twice!r} is there twice", message_id)


def _may_repeat(count: Callable[[bytes], int]) -> bool:
    """Whether any member that riglm reads could be there twice; this is asked of every request, and so unrolled."""
    return (
        count(b'"id"') > 1
        or count(b'"method"') > 1
        or count(b'"params"') > 1
        or count(b'"name"') > 1
        or count(b'"uri"') > 1
        or count(b'"arguments"') > 1
        or count(b'"_meta"') > 1
    )


class _Nested(msgspec.Struct):
    arguments: Raw = _NONE
    meta: Raw = msgspec.field(default=_NONE, name="_meta")


_decode_nested = msgspec.json.Decoder(_Nested).decode


def _may_repeat_outside(line: bytes, params: Raw) -> bool:
    """Whether a member that riglm reads could be there twice outside of `_meta` and `arguments`.

    Modern clients have a second `"name"` in their `_meta`. Only whole objects are left out, and no names of members
    that riglm reads, so that what is there twice is still counted twice.
    """
    try:
        nested = _decode_nested(params)
    except UNREADABLE:
        return True
    for value in (bytes(nested.meta), bytes(nested.arguments)):
        if value.startswith(b"{"):
            line = line.replace(value, b"")
            if not _may_repeat(line.count):
                return False
    return True


def repeated(raw: bytes, names: tuple[bytes, ...]) -> str | None:
    """The first of `names`, given as JSON, that a raw object has more than once, however it is escaped."""
    suspects = _suspects(raw, names)
    if not suspects or raw.lstrip()[:1] != b"{":
        return None
    inner = [bytes(value) for value in members(raw).values()]
    for name in suspects:
        if _count_spellings(raw, name) - sum(_count_spellings(value, name) for value in inner) > 1:
            return name.decode().strip('"')
    return None


def _suspects(raw: bytes, names: tuple[bytes, ...]) -> list[bytes]:
    """Return the names, given as JSON, that are there more than once, in any place."""
    count = _count_spellings if b"\\u00" in raw else _count
    return [name for name in names if count(raw, name) > 1]


_LONGEST_ESCAPE: Final = len(rb"\u0041")


def _count(raw: bytes, name: bytes) -> int:
    """How often a string, given as JSON, is there as it is spelled."""
    size = rawjson.SLICE
    return sum(raw.count(name, start, start + size + len(name) - 1) for start in range(0, len(raw), size))


def _count_spellings(raw: bytes, name: bytes) -> int:
    """How often a string, given as JSON, is there in any spelling."""
    size, longest, find = rawjson.SLICE, _LONGEST_ESCAPE * len(name), _spellings(name).finditer
    return sum(
        found.start() < start + size
        for start in range(0, len(raw), size)
        for found in find(raw, start, start + size + longest)
    )


@functools.lru_cache(maxsize=16)
def _spellings(name: bytes) -> re.Pattern[bytes]:
    """A pattern of a string, given as JSON, with any of its characters escaped."""
    characters = (rb"(?:%b|\\u(?i:%04x))" % (re.escape(name[at : at + 1]), name[at]) for at in range(1, len(name) - 1))
    return re.compile(rb'(?<!\\)"%b"' % b"".join(characters))


def _second_reading(line: bytes, error: Exception) -> _Envelope:
    """Read a line that the strict decoder refused, or explain why it is no message."""
    if isinstance(error, RecursionError):
        raise MalformedMessageError(
            PARSE_ERROR, "Parse error: nested too deeply", rawjson.asked_id(line, line)
        ) from None
    with contextlib.suppress(*UNREADABLE):
        if rawjson.has_surrogates(line):
            fixed = rawjson.repaired(line)
            envelope = _decode_envelope(fixed)
            for name in _RAW_PARTS:
                if value := getattr(envelope, name):
                    setattr(envelope, name, rawjson.original(value, fixed, line))
            return envelope
    if not isinstance(error, msgspec.ValidationError):
        raise MalformedMessageError(PARSE_ERROR, f"Parse error: {error}") from None
    if line.lstrip()[:1] == b"[":
        raise MalformedMessageError(INVALID_REQUEST, "Invalid request: batches are not part of this protocol") from None
    message_id = bytes(members(line).get("id", b""))
    readable = message_id if message_id and message_id[0] in _ID_STARTS else None
    raise MalformedMessageError(INVALID_REQUEST, f"Invalid request: {error}", readable) from None


_RAW_PARTS: Final = ("id", "params", "result", "error")


_NUMBER_STARTS: Final = frozenset(b"%d" % digit for digit in range(10)) | {b"-"}
_EXACT: Final = 2**53
"""Below this, doubles hold every whole number."""


def id_key(raw: bytes) -> bytes:
    """An id in a form that compares equal for equal ids, however a peer spelled it: `1`, `1.0` and `10e-1` are one.

    What cannot be an id stays as it is.
    """
    if raw.isdigit():
        return raw
    if raw[:1] == b'"':
        if (raw.isascii() and b"\\" not in raw) or rawjson.repaired(raw) != raw:
            return raw
        return encode(plain(raw))
    if raw[:1] not in _NUMBER_STARTS:
        return raw
    number = float(raw)
    return b"%d" % number if number.is_integer() and abs(number) < _EXACT else raw


def find_id(keys: Iterable[bytes], raw: bytes) -> bytes | None:
    """Return the one of the `id_key`s that a peer means by an id; None if there is none, or several.

    Some servers answer `2` by `"2"`, or the reverse, and both official SDKs accept that: if no key equals the id, the
    only one with the same text is meant.
    """
    key, found = id_key(raw), None
    for each in keys:
        if each == key:
            return each
        if _loose_key(each) == _loose_key(key):
            found = each if found is None else _AMBIGUOUS
    return found or None


_AMBIGUOUS: Final = b""
_NUMBER_TEXT: Final = re.compile(rb"\s*-?\d{1,15}(?:\.\d{1,15})?\s*")


def _loose_key(key: bytes) -> bytes:
    """An `id_key` that is the same for a number and for a string with that number."""
    inner = key[1:-1] if key[:1] == b'"' else b""
    return id_key(b"%r" % float(inner)) if _NUMBER_TEXT.fullmatch(inner) else key


def request(message_id: bytes, method: str, params: Raw | bytes = b"{}") -> Message:
    """A new request."""
    raw = bytes(params)
    line = b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (message_id, encode(method), raw)
    return Message(line, message_id, method, Raw(raw))


def notification(method: str, params: Raw | bytes = b"") -> Message:
    """A new notification."""
    raw = bytes(params)
    body = b',"params":' + raw if raw else b""
    return Message(b'{"jsonrpc":"2.0","method":%b%b}' % (encode(method), body), None, method, Raw(raw))


def result(message_id: bytes, raw: Raw | bytes) -> Message:
    """A new successful response."""
    body = bytes(raw)
    return Message(b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (message_id, body), message_id, None, result=Raw(body))


def error(message_id: bytes | None, code: int, words: str, data: Any = None) -> Message:
    """A new error response."""
    fields: dict[str, Any] = {"code": code, "message": words}
    if data is not None:
        fields["data"] = data
    body = encode(fields)
    line = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (message_id or b"null", body)
    return Message(line, message_id, None, error=Raw(body))


def answer_without_client(request: Message) -> Message:
    """Return riglm's response to a request of a server while no client can be asked."""
    if request.method == "ping":
        return result(request.id or b"null", b"{}")
    return error(request.id, METHOD_NOT_FOUND, f"Method not found: no client can be asked for {request.method}")


def create_stop_error(request: Message) -> Message:
    """Return the error for a request that no server has answered when riglm stops."""
    words = "riglm is stopping and the server has not answered yet: the request may have taken effect"
    return error(request.id, UPSTREAM_UNAVAILABLE, words)


def error_code(message: Message) -> int | None:
    """The code of an error response, None when it is none."""
    code = plain(members(message.error).get("code", b"null")) if message.error else None
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def next_cursor(fields: Mapping[str, Raw]) -> bytes:
    """The raw cursor of the page that follows a page of a list with these members; empty when none does."""
    cursor = bytes(fields.get("nextCursor", b""))
    return b"" if cursor == b"null" else cursor


def is_tool_error(response: Message) -> bool:
    """True if the response to a `tools/call` is an error of the tool."""
    if response.is_tool_error is None:
        is_marked = b'"isError"' in response.line
        response.is_tool_error = is_marked and bytes(members(response.result).get("isError", b"")) == b"true"
    return response.is_tool_error
