"""JSON-RPC messages that keep their payloads as the bytes they came as.

Only the envelope is decoded: id, method, and where params, result and error lie. Params, results and errors stay raw
JSON, so what riglm does not own passes byte for byte, whatever a newer protocol revision adds to it.
"""

import contextlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

Raw = msgspec.Raw

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
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


class Malformed(ValueError):
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
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_array = msgspec.json.Decoder(list[Raw]).decode
_decode_any = msgspec.json.Decoder().decode
encode: Final = msgspec.json.Encoder().encode
"""Any plain value as compact JSON bytes."""


class Message:
    """One JSON-RPC message.

    `line` is the whole message as it came, without a newline. `id` is the raw JSON of the id, None when there is none;
    `params`, `result` and `error` are raw JSON, empty when absent.
    """

    __slots__ = ("error", "id", "line", "method", "params", "result")

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
        try:
            fields = _decode_object(self.line)
        except msgspec.DecodeError:
            fields = _decode_object(_mended(self.line))
        for name, value in members.items():
            fields[name] = Raw(value)
        return decode(join_object(fields))


def decode(line: bytes) -> Message:
    """Read one message.

    A message that stands on several lines is put on one, since pipes and event streams carry a message a line. Lone
    surrogate escapes, which some JSON writers produce, are tolerated: the line is kept as it is, while the parts
    that riglm reads, and messages that it must put together anew, show U+FFFD in their place.

    Raises:
        Malformed: it is no JSON, or JSON that is no single JSON-RPC message.
    """
    message = _read(line)
    if b"\n" in line or b"\r" in line:  # between tokens only, now that it was read: within strings they are escaped
        return _read(line.replace(b"\n", b" ").replace(b"\r", b" "))
    return message


def _read(line: bytes) -> Message:
    try:
        envelope = _decode_envelope(line)
    except msgspec.DecodeError as error:
        envelope = _second_reading(line, error)
    except RecursionError:
        raise Malformed(PARSE_ERROR, "Parse error: nested too deeply") from None
    message_id = bytes(envelope.id) if envelope.id else None
    if message_id is not None and message_id[0] not in _ID_STARTS:
        unread = message_id == b"null" and envelope.method is None  # how one answers what had no readable id
        if not unread:
            raise Malformed(INVALID_REQUEST, "Invalid request: the id must be a string or a number")
    if envelope.method is None:
        if message_id is None or not (envelope.result or envelope.error):
            raise Malformed(INVALID_REQUEST, "Invalid request: neither a method nor a result", message_id)
    elif envelope.params and bytes(memoryview(envelope.params)[:1]) not in _STRUCTURED:
        raise Malformed(INVALID_REQUEST, "Invalid request: params must be an object or an array", message_id)
    failure = envelope.error if bytes(envelope.error) != b"null" else _NONE  # some servers send both members
    return Message(line, message_id, envelope.method, envelope.params, envelope.result, failure)


_ID_STARTS: Final = frozenset(b'"-0123456789')
_STRUCTURED: Final = (b"{", b"[", b"n")  # null params occur in the field and mean none


def _second_reading(line: bytes, error: msgspec.DecodeError) -> _Envelope:
    """Read a line that the strict decoder refused, or say why it is no message."""
    if b"\\ud" in line or b"\\uD" in line:
        with contextlib.suppress(msgspec.DecodeError, RecursionError):
            return _decode_envelope(_mended(line))
    if not isinstance(error, msgspec.ValidationError):
        raise Malformed(PARSE_ERROR, f"Parse error: {error}") from None
    if line.lstrip()[:1] == b"[":
        raise Malformed(INVALID_REQUEST, "Invalid request: batches are not part of this protocol") from None
    message_id: bytes | None = None
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        message_id = bytes(_decode_object(line).get("id", _NONE)) or None
    raise Malformed(INVALID_REQUEST, f"Invalid request: {error}", message_id) from None


def _mended(line: bytes) -> bytes:
    return _LONE_SURROGATE.sub(rb"\\ufffd", line)


def join_object(fields: Mapping[str, Raw | bytes]) -> bytes:
    """A JSON object from raw members."""
    return b"{" + b",".join([encode(key) + b":" + bytes(value) for key, value in fields.items()]) + b"}"


def members(raw: Raw | bytes) -> dict[str, Raw]:
    """The members of a raw JSON object; empty when it is something else."""
    try:
        return _decode_object(raw)
    except (msgspec.DecodeError, RecursionError):
        return {}


def elements(raw: Raw | bytes) -> list[Raw]:
    """The elements of a raw JSON array; empty when it is something else."""
    try:
        return _decode_array(raw)
    except (msgspec.DecodeError, RecursionError):
        return []


def plain(raw: Raw | bytes) -> Any:
    """The decoded value of raw JSON, None when it cannot be decoded."""
    try:
        return _decode_any(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def text(raw: Raw | bytes | None) -> str | None:
    """The string that raw JSON holds, None when it is anything else."""
    if not raw:
        return None
    value = plain(raw)
    return value if isinstance(value, str) else None


def with_member(raw: Raw | bytes, path: tuple[str, ...], value: bytes) -> bytes:
    """A raw JSON object with the member at `path` set to raw `value`; objects on the way are made when missing."""
    fields = members(raw)
    head, *rest = path
    fields[head] = Raw(with_member(fields.get(head, b"{}"), tuple(rest), value) if rest else value)
    return join_object(fields)


def id_key(raw: bytes) -> bytes:
    """An id in a form that compares equal for equal ids, however a peer escaped it."""
    if raw[0] == 0x22 and (b"\\" in raw or not raw.isascii()):
        return encode(plain(raw))
    return raw


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


def error_code(message: Message) -> int | None:
    """The code of an error response, None when it is none."""
    code = plain(members(message.error).get("code", b"null")) if message.error else None
    return code if isinstance(code, int) else None


def is_tool_error(raw: Raw) -> bool:
    """Whether the raw result of a `tools/call` says that the tool failed."""
    return b'"isError"' in bytes(raw) and bytes(members(raw).get("isError", b"")) == b"true"
