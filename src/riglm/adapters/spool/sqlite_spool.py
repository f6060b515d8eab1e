"""The spool: an SQLite file for each process, and those that it adopted from ended processes."""

import json
import logging
import os
import shutil
import sqlite3
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID
from zlib import crc32

import msgspec

from riglm.adapters.spool.file_lock import FileLock, LockHeldError, is_held
from riglm.domain.doctor import SpoolStatus
from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ToolInvocation
from riglm.domain.learning import LearnedPair
from riglm.domain.session import Session, uuid7
from riglm.domain.session_cost import TokenUsage
from riglm.domain.tool import StoredToolCatalog
from riglm.domain.tool_pin import ToolPin
from riglm.ports.analytics import LearnedPairsDeleted, Record, SessionClosed
from riglm.ports.spool import SpooledRecords, SpoolPort, SpoolUnavailableError

_TRANSIENT: Final = "reserved"  # a field of sessions that only the process that serves them needs
_read: Final = msgspec.json.Decoder().decode


def encode(record: Record) -> bytes | None:
    """Return a record as one line of ASCII without its end; None if it has a value that cannot be encoded."""
    with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return _write([_KINDS[type(record)], _values(record)]).encode("ascii")
    return None


def encoded_start(type_: type[Record]) -> bytes:
    """Return what the lines of all records of a type begin with."""
    return f'["{_KINDS[type_]}",'.encode("ascii")


def decode(line: bytes) -> Record | None:
    """Return the record of a line; None if `encode` did not write it."""
    with suppress(KeyError, TypeError, ValueError, AttributeError, RecursionError, msgspec.MsgspecError):
        kind, values = _parse(line)
        if kind == _KINDS[LearnedPair]:
            import numpy as np  # noqa: PLC0415  # a process without learned pairs does not load it

            values["vector"] = np.frombuffer(b64decode(values["vector"], validate=True), dtype="<f4")
        record: Record = msgspec.convert(values, _TYPES[kind])
        return record
    return None


def _parse(line: bytes) -> Any:
    """Parse JSON, with the slower parser what the fast one rejects, such as lone surrogates."""
    try:
        return _read(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return json.loads(line)


def _values(record: Any) -> dict[str, Any]:
    if isinstance(record, ToolInvocation):
        return msgspec.structs.asdict(record)
    return {field.name: getattr(record, field.name) for field in fields(record) if field.name != _TRANSIENT}


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if is_dataclass(value):
        return _values(value)
    if hasattr(value, "ndim"):
        if value.ndim > 1:
            raise ValueError("a vector is not a row of numbers")
        return b64encode(value.astype("<f4").tobytes()).decode("ascii") if value.ndim else value.item()
    raise TypeError(f"{type(value).__name__} cannot be encoded")


# Lone surrogates, which a name may hold, pass as escapes.
_write: Final = json.JSONEncoder(separators=(",", ":"), default=_plain).encode


_TYPES: Final[Mapping[str, type[Any]]] = {
    "invocation": ToolInvocation,
    "exposure": Exposure,
    "session": Session,
    "session_closed": SessionClosed,
    "learned_pair": LearnedPair,
    "pairs_forgotten": LearnedPairsDeleted,
    "tool_catalog": StoredToolCatalog,
    "tool_pin": ToolPin,
    "token_usage": TokenUsage,
}
_KINDS: Final = {type_: kind for kind, type_ in _TYPES.items()}


MAX_BYTES: Final = 256 << 20
VERSION: Final = 6
"""The version of the files, in `user_version`."""

_TIMEOUT_SECONDS: Final = 1.0
_SPARE_BYTES: Final = 8192  # that an append may take more than its records: SQLite adds whole pages
_STORE_BYTES: Final = 256 << 10  # that a store takes to open and to begin, with its journal and the index of that
_STORE_SHARE: Final = 2  # of a record in the store relative to the spool, once in the journal and once in the file

_TABLE: Final = "CREATE TABLE record (id INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, body BLOB NOT NULL)"
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})

_log: Final = logging.getLogger("riglm.spool")


@dataclass(eq=False)
class _File:
    """An SQLite file that this process holds by a lock file next to it. `unread` counts its records."""

    path: Path
    _claim: FileLock
    _connection: sqlite3.Connection
    is_own: bool = field(kw_only=True)
    unread: int = 0
    _removed: int = 0
    _read: int = 0
    _read_count: int = 0

    @classmethod
    def create(cls, root: Path, *, durable: bool) -> Self:
        """Create a file of this process. Raises `OSError` or `sqlite3.Error`."""
        root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # parents get the mode of the umask only
        root.mkdir(mode=0o700, exist_ok=True)
        path = root / f"{uuid7().hex}-{os.getpid()}.db"  # sorts by time
        claim = FileLock(path.with_suffix(".lock"), str(os.getpid()))
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            connection = _connect(path)
            connection.execute("PRAGMA synchronous=OFF")  # an empty file is not worth waiting for a slow disk
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA user_version={VERSION}")
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        except BaseException:
            _unlink(path)
            claim.remove()
            raise
        return cls(path, claim, connection, is_own=True)

    @classmethod
    def adopt(cls, path: Path) -> Self | None:
        """Take over the file of an ended process; None if a process holds it, or it has no record to read.

        Raises:
            OSError: it cannot be locked.
        """
        try:
            claim = FileLock(path.with_suffix(".lock"))
        except LockHeldError:
            return None
        if not path.is_file():
            claim.remove()
            return None
        file = cls(path, claim, _connect(path), is_own=False)
        try:
            version, file.unread = _version_and_count(file._connection)
        except sqlite3.Error as error:
            file.give_up(error)
            return None
        if version > VERSION:
            _log.warning("left %s alone, which a newer riglm wrote: upgrade riglm to store it", path)
            file.leave()
        elif not file.unread:
            file.discard()
        else:
            return file
        return None

    @property
    def size_bytes(self) -> int:
        """The pages in use."""
        pages, free, size = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def append(self, bodies: Sequence[bytes]) -> None:
        """Append records, all or none. Raises `sqlite3.Error`."""
        rows = [(crc32(body), body) for body in bodies]
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT INTO record (checksum, body) VALUES (?, ?)", rows)
        self.unread += len(rows)

    def hurry(self) -> None:
        """Sync no append from now on. Raises `sqlite3.Error`."""
        self._connection.execute("PRAGMA synchronous=NORMAL")

    def sync(self) -> None:
        """Bring what was appended to the disk. Raises `sqlite3.Error`."""
        self._connection.execute("PRAGMA wal_checkpoint").fetchone()

    def read(self, limit: int) -> SpooledRecords:
        """Return the next records that were not removed. Raises `sqlite3.Error`."""
        query = "SELECT id, checksum, body FROM record WHERE id > ? ORDER BY id LIMIT ?"
        rows = self._connection.execute(query, (self._removed, limit)).fetchall()
        self._read, self._read_count = (rows[-1][0], len(rows)) if rows else (self._removed, 0)
        records = [record for _, checksum, body in rows if (record := _decoded(checksum, body)) is not None]
        missing = max(0, self.unread - len(rows)) if len(rows) < limit else 0
        self.unread -= missing
        return SpooledRecords(records=records, is_own=self.is_own, damaged=len(rows) - len(records) + missing)

    def remove(self) -> None:
        """Remove the records that `read` returned last. Raises `sqlite3.Error`."""
        self._removed = self._read
        self.unread -= self._read_count
        self._read_count = 0
        self._connection.execute("DELETE FROM record WHERE id <= ?", (self._read,))

    def leave(self) -> None:
        """Leave the file to the next process."""
        self._connection.close()
        self._claim.release()

    def discard(self) -> None:
        """Delete the file."""
        self._connection.close()
        with suppress(OSError):
            _unlink(self.path)
        self._claim.remove()

    def give_up(self, error: sqlite3.Error) -> bool:
        """Leave an unreadable file to the next process, or rename it if it is damaged; True if it was renamed."""
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGE:
            _log.warning("records stay in the spool for the next start: %s cannot be read: %s", self.path, error)
            self.leave()
            return False
        self._connection.close()
        damaged = self.path.with_suffix(".corrupt")
        with suppress(OSError):
            self.path.rename(damaged)
            _unlink(self.path)
        _log.warning("the spool %s is damaged; it was renamed to %s", self.path, damaged.name)
        self._claim.remove()
        return True


class SqliteSpool(SpoolPort):
    """Keeps records in SQLite files below `root` that take at most `max_bytes`, adopted ones included.

    With `durable`, every append is synced until `hurry`. The file of this process is created by the first append and
    deleted when its last record is removed.

    While the file `store` is on the same disk, it leaves as much space as that needs to take what is in the spool,
    until `hurry`: on a full disk the spool would take all that is freed, and nothing would drain.
    """

    def __init__(
        self,
        root: Path,
        *,
        max_bytes: int = MAX_BYTES,
        durable: bool = False,
        store: Path | None = None,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
    ) -> None:
        """`free_bytes` returns how many bytes are free on the disk of an existing path."""
        self._root = root
        self._max_bytes = max_bytes
        self._durable = durable
        self._store = store
        self._free_bytes = free_bytes
        self._files: deque[_File] = deque()
        self._own: _File | None = None

    def __enter__(self) -> Self:
        try:
            stems = {path.with_suffix("") for ending in ("db", "lock") for path in self._root.glob(f"*.{ending}")}
        except OSError as error:
            _log.warning("the spools of ended processes cannot be listed: %s", error)
            return self
        for stem in sorted(stems):
            try:
                file = _File.adopt(stem.with_suffix(".db"))
            except (OSError, sqlite3.Error) as error:
                _log.warning("the spool %s cannot be adopted: %s", stem, error)
            else:
                self._files += [file] if file is not None else []
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            with suppress(sqlite3.Error):
                file.sync()
            file.leave()
        self._files.clear()
        self._own = None

    def append(self, records: Sequence[Record]) -> int:
        bodies = [body for record in records if (body := encode(record)) is not None]
        size = self.size_bytes
        added = sum(map(len, bodies)) + _SPARE_BYTES
        if size + added > self._max_bytes:
            raise SpoolUnavailableError(f"the spool {self._root} is full: it holds {size} bytes")
        self._leave_space(size, added)
        if bodies:
            try:
                if self._own is None:
                    self._own = _File.create(self._root, durable=self._durable)
                    self._files.append(self._own)
                self._own.append(bodies)
            except (sqlite3.Error, OSError) as error:
                self._close_own()
                raise SpoolUnavailableError(f"the spool {self._root} cannot be written: {error}") from error
        return len(records) - len(bodies)

    def hurry(self) -> None:
        self._durable = False
        self._store = None
        if self._own is not None:
            with suppress(sqlite3.Error):
                self._own.hurry()

    def sync(self) -> None:
        if self._own is not None:
            try:
                self._own.sync()
            except sqlite3.Error as error:
                raise SpoolUnavailableError(f"the spool {self._root} cannot be synced: {error}") from error

    def read(self, limit: int) -> SpooledRecords | None:
        while self._files:
            file = self._files[0]
            try:
                found = file.read(limit)
            except sqlite3.Error as error:
                self._drop(file)
                lost = file.unread if file.is_own else 0
                is_damaged = file.give_up(error)
                if lost:
                    damaged, skipped = (lost, 0) if is_damaged else (0, lost)
                    return SpooledRecords(records=[], is_own=True, damaged=damaged, skipped=skipped)
                continue
            if found.records or found.damaged:
                return found
            self._drop(file)
            file.discard()
        return None

    def remove(self) -> None:
        if not self._files:
            return
        file = self._files[0]
        try:
            file.remove()
        except sqlite3.Error as error:
            _log.warning("records that were stored could not be removed from the spool: %s", error)
        if file.unread <= 0:
            self._drop(file)
            file.discard()

    @property
    def is_empty(self) -> bool:
        return not self._files

    @property
    def size_bytes(self) -> int:
        with suppress(sqlite3.Error):
            return sum(file.size_bytes for file in self._files)
        return 0

    def _leave_space(self, size: int, added: int) -> None:
        """Raise `SpoolUnavailableError` if the store could not take all of the spool after `added` bytes more."""
        if self._store is None:
            return
        try:
            disk = next(path for path in (self._root, *self._root.parents) if path.exists())
            is_shared = disk.stat().st_dev == self._store.parent.stat().st_dev
            free = self._free_bytes(disk)
        except OSError:
            return
        if is_shared and free < added + _STORE_SHARE * (size + added) + _STORE_BYTES:
            raise SpoolUnavailableError(
                f"the spool {self._root} leaves the last {free} bytes of the disk to the store — fix: make space there"
            )

    def _close_own(self) -> None:
        """Write no more into the file of this process; what it holds is still read."""
        own, self._own = self._own, None
        if own is not None and not own.unread:
            self._files.remove(own)
            own.discard()

    def _drop(self, file: _File) -> None:
        self._files.remove(file)
        if file is self._own:
            self._own = None


def survey(*directories: Path) -> list[SpoolStatus]:
    """Return every spool in the directories by name. Those that vanish meanwhile are left out."""
    return [found for each in directories for path in sorted(each.glob("*.db")) for found in _inspected(path)]


def spooled_pins(store_kind: str, directory: Path) -> Sequence[ToolPin]:
    """Return the tool pins in the spools of all processes; those that cannot be read are left out.

    A store in memory has no spools.
    """
    if store_kind == "memory":
        return ()
    pins = []
    for path in sorted(directory.glob("*.db")):
        with suppress(sqlite3.Error), closing(_connect(path, "ro")) as connection:
            if _version_and_count(connection)[0] <= VERSION:
                start = encoded_start(ToolPin)
                query = "SELECT checksum, body FROM record WHERE substr(body, 1, ?) = ? ORDER BY id"
                found = (_decoded(*row) for row in connection.execute(query, (len(start), start)))
                pins += [record for record in found if isinstance(record, ToolPin)]
    return pins


def _inspected(path: Path) -> Iterator[SpoolStatus]:
    held = is_held(path.with_suffix(".lock"))
    version = records = damaged = 0
    try:
        size = path.stat().st_size
        with closing(_connect(path, "ro")) as connection:
            version, _ = _version_and_count(connection)
            if version <= VERSION:
                for checksum, body in connection.execute("SELECT checksum, body FROM record"):
                    is_readable = _decoded(checksum, body) is not None
                    records += is_readable
                    damaged += not is_readable
    except FileNotFoundError:
        return
    except sqlite3.Error:
        if not path.exists():
            return
        damaged += 1
    yield SpoolStatus(
        path=path, is_held=held, records=records, damaged=damaged, is_newer=version > VERSION, size_bytes=size
    )


def _connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)


def _version_and_count(connection: sqlite3.Connection) -> tuple[int, int]:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    is_made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'record'").fetchone()
    return version, connection.execute("SELECT count(*) FROM record").fetchone()[0] if is_made else 0


def _unlink(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _decoded(checksum: int, body: bytes) -> Record | None:
    return decode(body) if isinstance(body, bytes) and crc32(body) == checksum else None
