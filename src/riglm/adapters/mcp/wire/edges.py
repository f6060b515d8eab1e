"""The first and last bytes of lines that are too long to be kept."""

from riglm.domain.salvage import EDGE


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
