"""Messages as lines: one a line, ended by a newline, from bytes that come in any pieces."""

from collections.abc import Callable
from io import BytesIO

from riglm.domain.rawjson import EDGE


class ChunkBuffer:
    """Pieces of one run of bytes. Neither adding nor taking copies what was added before, however long it is."""

    __slots__ = ("_gathered", "size")

    def __init__(self) -> None:
        self._gathered: BytesIO | None = None
        self.size = 0
        """Bytes added since the last `take` or `drop`."""

    def add(self, piece: bytes) -> None:
        """Keep a piece."""
        if self._gathered is None:
            self._gathered = BytesIO()
        self._gathered.write(piece)
        self.size += len(piece)

    def take(self, last: bytes) -> bytes:
        """Everything added, with `last` at its end; what was gathered is forgotten."""
        if self._gathered is None:
            return last
        self._gathered.write(last)
        whole = self._gathered.getvalue()
        self.drop()
        return whole

    def drop(self) -> None:
        """Forget what was gathered."""
        self._gathered = None
        self.size = 0


class LineSplitter:
    r"""Cuts a stream of bytes into lines of any size, in linear time and bounded memory.

    A line ends at LF; a CR before it is dropped; blank lines (nothing but white space) are skipped. A line of more than
    `limit` bytes (its CR counted) is skipped up to its newline without being kept, and framing goes on after it.

    Args:
        on_line: gets each line without its ending. It must not raise: the rest of its chunk would be lost.
        on_overflow: gets the size in bytes of each line that was over the limit, once, when that line ends, with its
            first and its last `EDGE` bytes.
        limit: the most bytes of one line.
    """

    __slots__ = ("_head", "_held", "_limit", "_on_line", "_on_overflow", "_skipped", "_tail")

    def __init__(
        self, on_line: Callable[[bytes], None], on_overflow: Callable[[int, bytes, bytes], None], limit: int
    ) -> None:
        self._on_line = on_line
        self._on_overflow = on_overflow
        self._limit = limit
        self._held = ChunkBuffer()
        self._skipped = 0
        self._head = self._tail = b""

    def feed(self, data: bytes) -> None:
        """Take the next bytes; calls back for each line that they complete."""
        end = data.find(b"\n")
        if end < 0:
            self._hold(data)
            return
        if self._held.size or self._skipped:
            self._complete(data[:end])
        else:
            self._deliver(data[:end])
        if end + 1 < len(data):
            *whole, rest = data[end + 1 :].split(b"\n")
            for line in whole:
                self._deliver(line)
            self._hold(rest)

    def end(self) -> None:
        """The stream is over, which ends its last line as a newline would."""
        self._complete(b"")

    def _deliver(self, line: bytes) -> None:
        if len(line) > self._limit:
            self._on_overflow(len(line), line[:EDGE], line[-EDGE:])
            return
        if line.endswith(b"\r"):
            line = line[:-1]
        if line and not line.isspace():
            self._on_line(line)

    def _complete(self, last: bytes) -> None:
        if self._skipped + self._held.size + len(last) <= self._limit:
            self._deliver(self._held.take(last))
            return
        self._skip(last)
        size, self._skipped = self._skipped, 0
        self._on_overflow(size, self._head, self._tail)

    def _hold(self, part: bytes) -> None:
        if self._skipped + self._held.size + len(part) > self._limit:
            self._skip(part)
        elif part:
            self._held.add(part)

    def _skip(self, part: bytes) -> None:
        """Keep only the first and the last bytes of a line over the limit."""
        if not self._skipped:
            part = self._held.take(part)
            self._head = self._tail = b""
        self._skipped += len(part)
        self._head += part[: EDGE - len(self._head)]
        self._tail = (self._tail + part[-EDGE:])[-EDGE:]


def well_formed(line: bytes) -> bytes:
    """The line itself when it is valid UTF-8, else a copy that is.

    Each invalid sequence (the longest start of a character that cannot go on, or one stray byte) becomes one U+FFFD, as
    Unicode recommends and browsers do; every other byte stays as it is.
    """
    if line.isascii():
        return line
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode(errors="replace").encode()
    return line
