"""Checks a SQLite file for damage with SQLite itself, and rebuilds its indexes.

A list may be made from the store before SQLAlchemy is imported, so nothing here needs that.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SECONDS: Final = 5.0


def connect(path: Path, mode: str, timeout: float) -> sqlite3.Connection:
    """A connection to a file that is there, to read (`ro`) or write (`rw`) it; statements wait `timeout` seconds."""
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
