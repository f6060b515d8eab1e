"""The spool in files: segments in a directory of this process's own, and in those that it adopted."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from riglm.adapters.spool.directory import SpoolDirectory, is_held, lock_of
from riglm.adapters.spool.segment import (
    VERSION,
    Segment,
    SegmentWriter,
    bodies,
    framed,
    segment_name,
    segments_in,
    version_of,
)
from riglm.ports.analytics import Record
from riglm.ports.spool import SpoolPort, SpoolSegment, SpoolUnavailable

MAX_BYTES: Final = 256 << 20
SEGMENT_BYTES: Final = 1 << 20

_log: Final = logging.getLogger("riglm.spool")


class FileSpool(SpoolPort):
    """Keeps records in files below `root`, at most `max_bytes` of them, what was adopted included.

    A file is closed at about `segment_bytes`. With `durable` every append is synced before it returns. The directory
    of this process's own is made by the first append.
    """

    def __init__(
        self, root: Path, *, max_bytes: int = MAX_BYTES, segment_bytes: int = SEGMENT_BYTES, durable: bool = False
    ) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._durable = durable
        self._own: SpoolDirectory | None = None
        self._adopted: list[SpoolDirectory] = []
        self._writer: SegmentWriter | None = None
        self._number = 0
        self._sizes: dict[Path, int] = {}

    def __enter__(self) -> Self:
        """Adopt the spools of ended processes."""
        try:
            for directory in SpoolDirectory.left_behind(self._root):
                self._adopt(directory)
        except OSError as error:
            _log.warning("spools left behind could not be looked for: %s", error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Sync, and leave to the next process what was not removed."""
        try:
            self._seal()
        finally:
            for directory in [*self._adopted, *([self._own] if self._own else [])]:
                directory.leave()
            self._adopted, self._own = [], None

    def append(self, records: Sequence[Record]) -> int:
        """Keep records behind all others; how many of them it cannot write down, and did not keep."""
        lines = [line for line in map(_line, records) if line is not None]
        length = sum(map(len, lines))
        if self.size_bytes + length > self._max_bytes:
            raise SpoolUnavailable(f"the spool {self._root} is full: it holds {self.size_bytes} bytes")
        if lines:
            try:
                self._written_to().append(lines, synced=self._durable)
            except OSError as error:
                self._give_up_segment()
                raise SpoolUnavailable(f"the spool {self._root} cannot be written: {error.strerror}") from error
            if self._writer is not None and self._writer.size_bytes >= self._segment_bytes:
                self._seal()
        return len(records) - len(lines)

    def sync(self) -> None:
        """See to it that what was appended outlives a loss of power."""
        if self._writer is not None:
            try:
                self._writer.sync()
            except OSError as error:
                self._give_up_segment()
                raise SpoolUnavailable(f"the spool {self._root} cannot be synced: {error.strerror}") from error

    def oldest(self) -> SpoolSegment | None:
        """The segment to be stored next: what was adopted first, then this process's own."""
        for directory in self._adopted:
            return directory.segments[0]
        if self._own is None:
            return None
        if not self._own.segments:
            self._seal()
        return self._own.segments[0] if self._own.segments else None

    def remove(self, segment: SpoolSegment) -> None:
        """Remove the oldest segment; all that is in it was stored."""
        directory, first = self._holding(segment)
        self._sizes.pop(first.path, None)
        try:
            directory.remove(first)
        except OSError as error:
            _log.warning("a segment that was stored could not be removed, and will be stored again: %s", error)
        self._let_go_of_empty()

    def set_aside(self, segment: SpoolSegment) -> None:
        """Pass over the oldest segment, which cannot be read now, and leave it to the next process."""
        directory, first = self._holding(segment)
        directory.segments.remove(first)
        self._let_go_of_empty()

    @property
    def size_bytes(self) -> int:
        """What it takes on disk."""
        return sum(self._sizes.values()) + (self._writer.size_bytes if self._writer is not None else 0)

    def _written_to(self) -> SegmentWriter:
        if self._writer is None:
            if self._own is None:
                self._own = SpoolDirectory.made(self._root)
            self._number += 1
            self._writer = SegmentWriter(self._own.path / segment_name(self._number))
            if self._durable:
                self._own.sync()
        return self._writer

    def _seal(self) -> None:
        """Write no more into the current segment; from now on it can be read."""
        if self._writer is not None:
            try:
                self.sync()
            except SpoolUnavailable as error:
                _log.warning("%s; what was not synced is safe from a crash of riglm only", error)
            self._give_up_segment()

    def _give_up_segment(self) -> None:
        """Close the current segment as it is; what of it was kept is read from it."""
        writer, self._writer = self._writer, None
        if writer is None or self._own is None:
            return
        with suppress(OSError):
            writer.close()
        if writer.written:
            self._own.segments.append(Segment(writer.path, writer.written))
            self._sizes[writer.path] = writer.size_bytes
        else:
            with suppress(OSError):
                writer.path.unlink()

    def _adopt(self, directory: SpoolDirectory) -> None:
        for segment in list(directory.segments):
            try:
                self._sizes[segment.path] = segment.path.stat().st_size
                readable = segment.is_readable()
            except OSError as error:
                _log.warning("left a segment alone that cannot be read: %s", error)
                readable = False
            else:
                if not readable:
                    _log.warning("left %s alone, which a newer riglm wrote: upgrade riglm to store it", segment.path)
            if not readable:
                self._sizes.pop(segment.path, None)
                directory.segments.remove(segment)
        if directory.segments:
            self._adopted.append(directory)
        else:
            directory.leave()

    def _holding(self, segment: SpoolSegment) -> tuple[SpoolDirectory, Segment]:
        held = [*self._adopted, *([self._own] if self._own else [])]
        return next((each, each.segments[0]) for each in held if each.segments and each.segments[0] is segment)

    def _let_go_of_empty(self) -> None:
        """Give up what has nothing left to store, so that nothing lies about while the store works."""
        for directory in [each for each in self._adopted if not each.segments]:
            self._adopted.remove(directory)
            directory.leave()
        if self._own is not None and not self._own.segments and self._writer is None:
            self._own.leave()
            self._own = None


def _line(record: Record) -> bytes | None:
    try:
        return framed(record)
    except (TypeError, ValueError, AttributeError, OverflowError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolFound:
    """The spool of one process; `is_held` is True while that runs, or another one that adopted it.

    `records` are those that can be read, `damaged` those that cannot; `newer` are segments of a newer riglm.
    """

    path: Path
    is_held: bool
    segments: int
    records: int
    damaged: int
    newer: int
    size_bytes: int


def survey(root: Path) -> list[SpoolFound]:
    """Return every spool below `root`, by name; those that vanish meanwhile are left out. Raises `OSError`."""
    found = []
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        with suppress(FileNotFoundError):
            if path.is_dir():
                found.append(_looked_at(path))
    return found


def _looked_at(path: Path) -> SpoolFound:
    records = damaged = newer = size = 0
    segments = segments_in(path)
    for segment in segments:
        try:
            data = segment.read_bytes()
        except FileNotFoundError:
            continue
        size += len(data)
        if version_of(data) > VERSION:
            newer += 1
            continue
        for body in bodies(data):
            records += body is not None
            damaged += body is None
    return SpoolFound(
        path=path,
        is_held=is_held(lock_of(path)),
        segments=len(segments),
        records=records,
        damaged=damaged,
        newer=newer,
        size_bytes=size,
    )
