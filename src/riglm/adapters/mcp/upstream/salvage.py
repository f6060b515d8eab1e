"""What can be told of an answer that cannot be read as a whole."""

import re
from typing import Final

from riglm.domain import jsonrpc

EDGE: Final = 512
"""So many bytes of either end of a message are looked at."""

_ID: Final = rb'"id"\s*:\s*(-?[0-9]+|"(?:[^"\\]|\\.)*")'
_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"'
_START: Final = rb"\s*\{\s*(?:%b\s*,\s*)?(?:%b\s*,\s*)?(?:%b\s*,\s*)?" % (_VERSION, _ID, _VERSION)
_AT_START: Final = re.compile(_START + rb'"(?:result|error)"\s*:')
_AT_END: Final = re.compile(rb"%b\s*(?:,\s*%b\s*)?\}\s*\Z" % (_ID, _VERSION))
_METHOD: Final = re.compile(_START + rb'"method"\s*:')


def answered_id(head: bytes, tail: bytes) -> bytes | None:
    """The key of the request that a damaged message answers, read from its first and last bytes.

    Servers write the id beside the version, either before the result or after it; an id anywhere else is not the
    message's own. None when there is none to be found, or the message is no answer.
    """
    if not_an_answer(head):
        return None
    found = _AT_START.match(head[:EDGE])
    if found is None or found[1] is None:
        found = _AT_END.search(tail[-EDGE:])
    return jsonrpc.id_key(found[1]) if found else None


def not_an_answer(head: bytes) -> bool:
    """Whether the first bytes of a message show that it is a request or a notification of the server."""
    return _METHOD.match(head[:EDGE]) is not None


class Edges:
    """Keeps the first and last bytes of the line that is being received: what is left of one over the limit."""

    __slots__ = ("_head", "_size", "_tail")

    def __init__(self) -> None:
        self._head = self._tail = b""
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes; those after the last newline begin a line."""
        newline = data.rfind(b"\n")
        if newline >= 0:
            self._start(data[newline + 1 :])
            return
        if len(self._head) < EDGE:
            self._head += data[: EDGE - len(self._head)]
        self._tail = (self._tail + data[-EDGE:])[-EDGE:]
        self._size += len(data)

    def of(self, size: int, data: bytes) -> list[tuple[bytes, bytes]]:
        """The edges of every line of `size` bytes that ends in `data`, which was not fed yet."""
        first, *others = data.split(b"\n")
        found = [(line[:EDGE], line[-EDGE:]) for line in others[:-1] if len(line) == size]
        if self._size + len(first) == size:
            found.insert(0, ((self._head + first)[:EDGE], (self._tail + first[-EDGE:])[-EDGE:]))
        return found

    def _start(self, line: bytes) -> None:
        self._head, self._tail, self._size = line[:EDGE], line[-EDGE:], len(line)
