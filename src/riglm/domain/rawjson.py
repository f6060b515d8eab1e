"""Raw JSON values: looked into and put together without being decoded as a whole.

Lone surrogate escapes, which some JSON writers produce, are tolerated: they are kept unchanged, and only values
that riglm itself reads show U+FFFD in their place.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

Raw = msgspec.Raw

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are no JSON, or JSON that nests too deeply."""

_HIGH: Final = rb"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE: Final = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
_low_at: Final = re.compile(_LOW).match
_ESCAPE: Final = len(rb"\ud800")
SLICE: Final = 1 << 18
"""Bytes of long JSON that are searched at once: other threads run between slices."""

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_array = msgspec.json.Decoder(list[Raw]).decode
_decode_any = msgspec.json.Decoder().decode
encode: Final = msgspec.json.Encoder().encode
"""Any plain value as compact JSON bytes."""


def join_object(fields: Mapping[str, Raw | bytes]) -> bytes:
    """A JSON object from raw members."""
    return b"{" + b",".join([encode(key) + b":" + bytes(value) for key, value in fields.items()]) + b"}"


def members(raw: Raw | bytes) -> dict[str, Raw]:
    """The members of a raw JSON object; empty when it is something else."""
    try:
        return strict_members(raw)
    except UNREADABLE:
        return {}


def strict_members(raw: Raw | bytes) -> dict[str, Raw]:
    """The members of a raw JSON object.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is something else.
    """
    try:
        return _decode_object(raw)
    except UNREADABLE:
        whole = bytes(raw)
        if not has_surrogates(whole):
            raise
        fixed = repaired(whole)
        return {key: original(value, fixed, whole) for key, value in _decode_object(fixed).items()}


def elements(raw: Raw | bytes) -> list[Raw]:
    """The elements of a raw JSON array; empty when it is something else."""
    try:
        return _decode_array(raw)
    except UNREADABLE:
        whole = bytes(raw)
    fixed = repaired(whole)
    try:
        return [original(value, fixed, whole) for value in _decode_array(fixed)]
    except UNREADABLE:
        return []


def plain(raw: Raw | bytes) -> Any:
    """The decoded value of raw JSON, U+FFFD where it has a lone surrogate; None when it cannot be decoded."""
    try:
        return _decode_any(raw)
    except UNREADABLE:
        whole = repaired(bytes(raw))
    try:
        return _decode_any(whole)
    except UNREADABLE:
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


def has_surrogates(raw: bytes) -> bool:
    """Whether there are escapes of surrogates, lone ones or pairs."""
    return b"\\ud" in raw or b"\\uD" in raw


def repaired(raw: bytes) -> bytes:
    """Raw JSON with U+FFFD in place of every lone surrogate, of the same length."""
    if not has_surrogates(raw) or b"\0" in raw:  # no JSON has that byte
        return raw
    parts = (
        part.replace(rb"\\", b"\0\0") for part in _slices_of_pairs(raw)
    )  # no escape begins behind an escaped backslash
    hidden = b"".join(parts)
    return b"".join(_LONE.sub(rb"\\ufffd", part).replace(b"\0", b"\\") for part in _slices_of_escapes(hidden))


def _slices_of_pairs(raw: bytes) -> Iterator[bytes]:
    """Parts of JSON, cut where no pair of backslashes is."""
    start = 0
    while start < len(raw):
        part = raw[start : start + SLICE]
        if (len(part) - len(part.rstrip(b"\\"))) % 2 and len(part) == SLICE:
            part = part[:-1]
        yield part
        start += len(part)


def _slices_of_escapes(raw: bytes) -> Iterator[bytes]:
    """Parts of JSON without escaped backslashes, cut where no escape and no pair of surrogates is."""
    start = 0
    while start < len(raw):
        end = start + SLICE
        cut = raw.rfind(b"\\", end - _ESCAPE + 1, end)
        end = end if cut < 0 else cut
        if _low_at(raw, end):
            end += _ESCAPE
        yield raw[start:end]
        start = end


def original(value: Raw, fixed: bytes, whole: bytes) -> Raw:
    """Return the part of `whole` at the place where `value`, which was decoded from its repaired form, is in that."""
    import numpy as np  # noqa: PLC0415  # only needed for lone surrogates

    start = np.frombuffer(value, np.uint8).ctypes.data - np.frombuffer(fixed, np.uint8).ctypes.data
    return Raw(memoryview(whole)[start : start + len(memoryview(value))])


EDGE: Final = 512
"""Maximum number of bytes that are inspected at either end of a message."""

ID: Final = rb'"id"\s*:\s*(-?[0-9]+|"(?:[^"\\]|\\.)*")'
"""A member that is an id."""

VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"'
"""The member that every message has."""

ID_AT_END: Final = re.compile(rb"%b\s*(?:,\s*%b\s*)?\}\s*\Z" % (ID, VERSION))
"""The end of a message that closes with its id, or with its id and the version."""

_METHOD: Final = rb'"method"\s*:\s*"(?:[^"\\]|\\.)*"'
_START: Final = re.compile(rb"\s*\{(?:\s*(?:%b|%b|(?P<method>%b))\s*,){1,3}" % (VERSION, ID, _METHOD))


def asked_id(head: bytes, tail: bytes) -> bytes | None:
    """The raw id of a damaged request, read from its first and last bytes; None when there is none to be found.

    Clients write the id next to the version and the method, or after the params. A message that does not show its
    method at the start may be an answer, and the id in it one of the other side.
    """
    start = _START.match(head[:EDGE])
    if start is None or not start["method"]:
        return None
    if start[1]:
        return start[1]
    end = ID_AT_END.search(tail[-EDGE:])
    return end[1] if end else None


def with_id(line: bytes, old: bytes, new: bytes, *, is_response: bool = False) -> bytes | None:
    """Return a message with the id `new` instead of `old`, or None if another member might be the id as well.

    This copies the message once; other changes decode and encode it. A long response is not searched for further ids if
    it has one at its start and none at its end.
    """
    if len(line) < SLICE and (not is_response or line.count(b'"id"') == 1) and b"\\u00" not in line:
        start = b'{"jsonrpc":"2.0","id":%b,' % old
        if line.startswith(start):
            return b'{"jsonrpc":"2.0","id":%b,%b' % (new, line[len(start) :])
        end = b',"id":%b}' % old
        if line.endswith(end) and line.count(b'"id"') == 1:
            return b'%b,"id":%b}' % (line[: -len(end)], new)
    return _with_id_at_edge(line, old, new, is_response=is_response)


_MAX_SEARCHED: Final = 1 << 13
"""Maximum bytes of a response that is searched for further ids although it has one at its start."""


def _with_id_at_edge(line: bytes, old: bytes, new: bytes, *, is_response: bool) -> bytes | None:
    """Do the same for any spacing and order of the members."""
    start, tail = _START.match(line[:EDGE]), max(0, len(line) - EDGE)
    has_id_at_start = start is not None and start[1] == old
    is_plain = is_response and has_id_at_start and len(line) > _MAX_SEARCHED and not ID_AT_END.search(line[tail:])
    if not is_plain and (b"\\u00" in line or line.count(b'"id"') != 1):
        return None
    if start is not None and start[1]:
        begin, end = start.span(1)
    elif found := ID_AT_END.search(line[tail:]):
        begin, end = found.start(1) + tail, found.end(1) + tail
    else:
        return None
    return b"".join((line[:begin], new, memoryview(line)[end:]))
