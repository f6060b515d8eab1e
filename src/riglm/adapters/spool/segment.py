"""One file of a spool: a line that says its version, then a line for each record with its checksum and its length.

The length and the end of the line each show where a record ends: so damage in one place costs one
record, and what a killed process had not written completely is distinguished from what is complete.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from riglm.adapters.spool.shapes import decode, encode
from riglm.ports.analytics import Record
from riglm.ports.spool import SpoolSegment, SpoolUnavailable

VERSION: Final = 4
_MAGIC: Final = b"riglm-spool "
HEAD: Final = _MAGIC + b"%d\n" % VERSION
_FIELDS: Final = len(b"xxxxxxxx xxxxxxxx ")
_SUFFIX: Final = ".seg"
_END: Final = b""  # no record is empty
_BINARY: Final = getattr(os, "O_BINARY", 0)  # Windows would write another end of line
_sync: Final = getattr(os, "fdatasync", os.fsync)  # macOS has only the second


def framed(record: Record) -> bytes:
    """The record's line. Raises `TypeError` or `ValueError` when it is none that could be written down."""
    body = encode(record)
    return b"%08x %08x %b\n" % (crc32(body), len(body), body)


def bodies(data: bytes) -> Iterator[bytes | None]:
    """What the lines of a segment hold, and None for each that is damaged; the version is not looked at."""
    at = 0
    if data.startswith(_MAGIC) or HEAD.startswith(data):
        at = data.find(b"\n") + 1 or len(data)
    while at < len(data):
        body = _body_at(data, at)
        if body is not None:
            at += _FIELDS + len(body) + 1
        else:
            end = data.find(b"\n", at)
            at = len(data) if end < 0 else end + 1
        yield body


def _body_at(data: bytes, at: int) -> bytes | None:
    start = at + _FIELDS
    try:
        checksum, length = int(data[at : at + 8], 16), int(data[at + 9 : at + 17], 16)
    except ValueError:
        return None
    body = data[start : start + length]
    return body if length > 0 and len(body) == length and crc32(body) == checksum else None


def version_of(data: bytes) -> int:
    """Return the version of a segment; the current one if it cannot be read."""
    if not data.startswith(_MAGIC):
        return VERSION
    digits = data[len(_MAGIC) : len(_MAGIC) + 8].split(b"\n")[0]
    return int(digits) if digits.isdigit() else VERSION


def segments_in(directory: Path) -> list[Path]:
    """The segments of a directory, oldest first; what is no regular file is none. Raises `OSError`."""
    return sorted(path for path in directory.glob(f"*{_SUFFIX}") if path.is_file())


def segment_name(number: int) -> str:
    """The name of the segment with this number: names sort as numbers do."""
    return f"{number:010d}{_SUFFIX}"


class Segment(SpoolSegment):
    """A segment that is read. What it holds is decoded as it is asked for."""

    def __init__(self, path: Path, written: int | None = None) -> None:
        """`written` is the number of records that this process wrote, None when another process did."""
        self.path = path
        self._is_own = written is not None
        self._unread = written or 0
        self._damaged = 0
        self._bodies: Iterator[bytes | None] | None = None

    @property
    def is_own(self) -> bool:
        """Whether this process wrote it."""
        return self._is_own

    @property
    def unread(self) -> int:
        """Return the number of remaining records, as far as this process wrote them."""
        return self._unread

    def is_readable(self) -> bool:
        """Whether this riglm knows its version. Raises `OSError`."""
        with self.path.open("rb") as file:
            return version_of(file.read(len(_MAGIC) + 16)) <= VERSION

    def read(self, most: int) -> Sequence[Record]:
        """Return at most `most` next records. Raises `SpoolUnavailable`."""
        if self._bodies is None:
            self._bodies = bodies(self._data())
        most = min(most, self._unread) if self._is_own else most
        records: list[Record] = []
        while len(records) < most and (body := next(self._bodies, _END)) is not _END:
            record = _decoded(body)
            if record is None:
                self._damaged += 1
            else:
                records.append(record)
        if self._is_own:
            self._account(len(records), at_end=len(records) < most)
        return records

    def damaged(self) -> int:
        """How many records could not be read since it was last asked."""
        found, self._damaged = self._damaged, 0
        return found

    def _data(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""  # what was in it is lost, and waiting does not bring it back
        except OSError as error:
            raise SpoolUnavailable(f"{self.path} cannot be read: {error.strerror}") from error

    def _account(self, read: int, *, at_end: bool) -> None:
        """Of an own segment the number of records is known: what is missing at its end is what was damaged."""
        self._unread -= read
        self._damaged = 0
        if at_end:
            self._damaged, self._unread = self._unread, 0


class SegmentWriter:
    """A segment that is written. `written` counts its records, `size_bytes` is its length."""

    def __init__(self, path: Path) -> None:
        """Make the file, readable by its owner alone. Raises `OSError`."""
        self.path = path
        self.written = 0
        self.size_bytes = 0
        self.is_dirty = False
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
        try:
            self._write(HEAD)
        except OSError:
            os.close(self._descriptor)
            path.unlink(missing_ok=True)
            raise

    def append(self, lines: Sequence[bytes], *, synced: bool) -> None:
        """Write records at the end. Raises `OSError`; then write no more, for where the file ends is not known."""
        before = self.size_bytes
        try:
            self._write(b"".join(lines))
            if synced:
                self.sync()
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, before)
                self.size_bytes = before
            raise
        self.written += len(lines)

    def sync(self) -> None:
        """Bring to the disk what was written. Raises `OSError`."""
        if self.is_dirty:
            _sync(self._descriptor)
            self.is_dirty = False

    def close(self) -> None:
        """Write no more; what was not synced is not."""
        os.close(self._descriptor)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        self.is_dirty = True
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self.size_bytes += len(data)


def _decoded(body: bytes | None) -> Record | None:
    try:
        return None if body is None else decode(body)
    except ValueError:
        return None
