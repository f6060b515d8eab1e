"""The file of a SQLite store as a file: which one it is, how it is made, and how it is put out of the way.

A list may be made from it before SQLAlchemy is imported, so nothing here needs that.
"""

import glob
import itertools
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from riglm.domain.errors import AnalyticsUnavailableError

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SECONDS: Final = 5.0


def connect(path: Path, mode: str, timeout: float) -> sqlite3.Connection:
    """A connection to a file that is there, to read (`ro`) or write (`rw`) it; statements wait `timeout` seconds."""
    extend_index(path)
    return sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True, timeout=timeout, isolation_level=None)


def is_damage(error: BaseException) -> bool:
    """Whether this is SQLite's word that a file is damaged or no database, and no lock, full disk or missing right."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE


def is_damaged(path: Path) -> bool:
    """Whether pages or tables are damaged; how indexes agree with them is not looked at, which takes far longer."""
    return _finds_fault(path, "PRAGMA quick_check(1)")


def is_sound(path: Path) -> bool:
    """Whether nothing is damaged, indexes included."""
    return not _finds_fault(path, "PRAGMA integrity_check(1)")


def make_indexes_anew(path: Path) -> bool:
    """Build all indexes from their tables; whether that went through."""
    with closing(connect(path, "rw", _SECONDS)) as connection:
        try:
            connection.execute("REINDEX")
        except sqlite3.IntegrityError:  # rows that no unique index can hold
            return False
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                return False
            raise
    return True


def _finds_fault(path: Path, check: str) -> bool:
    with closing(connect(path, "ro", _SECONDS)) as connection:
        connection.text_factory = bytes  # its messages may quote damaged names
        try:
            found = connection.execute(check).fetchall()
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                return True
            raise
    return bool(found != [(b"ok",)])


_HEADER: Final = b"SQLite format 3\0"
_JOURNAL: Final = "-wal"
_INDEX: Final = "-shm"
_INDEX_BYTES: Final = 1 << 15
_INDEX_HEADER_BYTES: Final = 136
_INDEXED_BYTES: Final = 1 << 24  # of the journal that one part of the index covers: about 4,096 pages of 4 KiB
_GUARD: Final = "-guard"
_BESIDE: Final = (_JOURNAL, _INDEX, "-journal")
_MAX_ASIDE: Final = 10  # a disk that damages one file after the other is not to be filled with them
_GUARD_SECONDS: Final = 5.0
_MISSING: Final = (0, 0)

_log: Final = logging.getLogger("riglm.analytics")


class StoreFile:
    """The file that is at a path when this is made; it may be replaced, removed, or put aside by another process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._index = f"{path.resolve()}{_INDEX}"
        self._identity = _identity(path)
        self._journal = _MISSING

    @property
    def is_in_place(self) -> bool:
        """True if it is still the file at its path, or if that is unknown."""
        now = _identity(self._path)
        return now is None or (now == self._identity and now != _MISSING)

    def extend_index(self) -> None:
        """Do what `extend_index` does for its path; cheap enough for each small transaction."""
        with suppress(OSError):
            if os.stat(self._index).st_size < _INDEX_HEADER_BYTES:  # noqa: PTH116
                extend_index(self._path)

    def look(self) -> None:
        """Raise `sqlite3.DatabaseError` when SQLite sees at first sight that it is damaged.

        It reads only: the last connection that may write would put the journal into the file, and end it.
        """
        try:
            with closing(connect(self._path.resolve(), "ro", _GUARD_SECONDS)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                raise

    def note_journal(self) -> None:
        """Remember which journal belongs to it; called while a connection is open, which keeps the journal."""
        journal = _identity(_beside(self._path.resolve(), _JOURNAL)) or _MISSING
        self._journal = journal if self.is_in_place else _MISSING

    def take_journal_away(self) -> None:
        """Quarantine its journal if it is next to another file by now: SQLite would apply it to that one."""
        path = self._path.resolve()
        if self._journal == _MISSING:
            return
        with _guarded(path):
            if not self.is_in_place and _identity(_beside(path, _JOURNAL)) == self._journal:
                _move_journal(path)

    def note_ours(self) -> None:
        """Leave a mark next to it, if possible, by which it is recognized as riglm's when its header is destroyed."""
        path = self._path.resolve()
        with suppress(OSError):
            _make_empty(_beside(path, _GUARD))

    def mend(self) -> bool:
        """Handle damage: rebuild the indexes if only they are damaged, otherwise quarantine the file.

        To set aside is to give it another name, with all that belongs to it, and to begin an empty one at its path.
        False, and nothing is done, when SQLite's own check finds no damage. True when another process was quicker, too.
        Raises `AnalyticsUnavailableError`, `OSError` or `sqlite3.Error` when it cannot be done, or the check itself
        fails.
        """
        path = self._path.resolve()
        with _guarded(path):
            if not self.is_in_place:
                return True
            if not is_damaged(path):
                if is_sound(path):
                    return False
                if make_indexes_anew(path) and is_sound(path):
                    _log.warning("indexes of the database %s were damaged; they were rebuilt, nothing is lost", path)
                    return True
            _set_aside(path)
        return True


def is_ours(path: Path) -> bool:
    """Whether a file with something in it is a database, or riglm had one there; what is neither is not to be moved.

    Raises `OSError`.
    """
    path = path.resolve()
    if any(_beside(path, ending).exists() for ending in (_GUARD, _JOURNAL)) or not _size(path):
        return True
    # Every process that has opened a database left a mark next to it: no lock is held here (see _make_empty).
    with path.open("rb") as file:
        return file.read(len(_HEADER)) == _HEADER


def make(path: Path) -> None:
    """Make a missing file, readable by its owner alone. It is empty: SQLite begins a database in it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = path.resolve()
    if path.exists() and not _is_an_orphan(path):
        return
    with _guarded(path):
        if _is_an_orphan(path):
            # SQLite would remove it. What is in it belonged to a file that was removed, or cut to nothing.
            _move_journal(path)
        _make_empty(path)


def extend_index(path: Path) -> None:
    """Extend the index of a journal that another program emptied, with zeros; SQLite then rebuilds its content.

    SQLite maps the index into memory. Without this, its next access ends the process (SIGBUS). The file is
    never shortened, and one that has its header is left alone: any thread or process may be enlarging it.
    """
    path = path.resolve()
    index = _beside(path, _INDEX)
    with suppress(OSError):
        if index.stat().st_size < _INDEX_HEADER_BYTES:
            os.truncate(index, _INDEX_BYTES * (2 + _size(_beside(path, _JOURNAL)) // _INDEXED_BYTES))


@contextmanager
def locked(file: Path, timeout: float) -> Iterator[bool]:
    """Hold SQLite's exclusive lock on a file that is for nothing else; whether it was got within `timeout` seconds.

    SQLite's own locks die with the process.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_empty(file)
    with closing(sqlite3.connect(file, timeout=timeout, isolation_level=None)) as connection:
        yield is_locked_by(connection)


def is_locked_by(connection: sqlite3.Connection) -> bool:
    """Take the exclusive lock of a database until the connection is closed; False if another connection holds it."""
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


@contextmanager
def _guarded(path: Path) -> Iterator[None]:
    """Be the only one that makes the file at `path` or moves it: between two moves there is none, and none may come."""
    with locked(_beside(path, _GUARD), _GUARD_SECONDS) as mine:
        if not mine:
            raise AnalyticsUnavailableError(
                f"the store {path} cannot be used: another process checks or replaces the file"
            )
        yield


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes the file at `path` from a different one of that name; None if that is unknown."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return _MISSING
    except OSError:
        return None
    return (there.st_dev, there.st_ino) if there.st_ino else None


def _is_an_orphan(path: Path) -> bool:
    """True if a journal is next to a file that is missing or empty, which SQLite never leaves so."""
    return not _size(path) and _size(_beside(path, _JOURNAL)) > 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _move_journal(path: Path) -> None:
    aside = _free_name(path, "replaced")
    _move_beside(path, aside)
    _log.warning("a journal next to %s does not belong to it; it was moved to %s", path, _beside(aside, _JOURNAL))


def _move_beside(path: Path, aside: Path) -> None:
    for ending in _BESIDE:
        with suppress(FileNotFoundError):
            _beside(path, ending).rename(_beside(aside, ending))


def _set_aside(path: Path) -> None:
    aside = _aside(path)
    path.rename(aside)
    _move_beside(path, aside)
    _make_empty(path)
    _log.warning(
        "the database %s is damaged; it was set aside as %s with all that is in it, and a new one was begun — to "
        "save what can be read: sqlite3 '%s' .recover | sqlite3 saved.db. Approved tools are lost with it: unless you "
        "run `riglm trust import`, servers' tools are approved as they are listed next",
        path,
        aside,
        aside,
    )


def _aside(path: Path) -> Path:
    """Where a damaged file goes.

    Raises:
        AnalyticsUnavailableError: there are too many of them, so there must be another cause.
    """
    there = path.parent.glob(f"{glob.escape(path.name)}.corrupt-*")
    if sum(not each.name.endswith(_BESIDE) for each in there) >= _MAX_ASIDE:
        raise AnalyticsUnavailableError(
            f"{_MAX_ASIDE} damaged files were set aside already — fix: have the disk checked, and move {path}.corrupt-*"
        )
    return _free_name(path, "corrupt")


def _free_name(path: Path, why: str) -> Path:
    """Return an unused name with the time in it; no file next to it has it either."""
    name = f"{path.name}.{why}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    places = (path.with_name(each) for each in names)
    return next(each for each in places if not any(_beside(each, ending).exists() for ending in ("", *_BESIDE)))


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f"{path.name}{ending}")


def _make_empty(file: Path) -> None:
    # Only a missing file may be opened here: closing any descriptor of a file drops every POSIX lock that this process
    # holds on it, those of its other SQLite connections too (sqlite.org/howtocorrupt.html, section 2.2).
    if not file.exists():
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600))
