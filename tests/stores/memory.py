"""Stores in memory that are open from their creation, for tests of what uses a store."""

import sqlite3
import weakref
from collections.abc import Callable
from functools import cache
from typing import Self
from uuid import uuid4

from riglm.adapters.analytics.database import Database
from riglm.adapters.analytics.engine import memory_database
from riglm.adapters.analytics.knowledge import SqlKnowledge
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.analytics.tables import upgrade


class _OpenFromCreation:
    _database: Database

    def __init__(self) -> None:
        self._anchor, url = _database()
        super().__init__(url, timeout=30.0)  # type: ignore[call-arg]
        self._database.open()
        for opened in (self._database, self._anchor):
            weakref.finalize(self, opened.close)

    def __enter__(self) -> Self:
        """Return the store, which is open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Keep the store open."""


class InMemoryAnalytics(_OpenFromCreation, SqlAnalytics):
    """Usage in memory. It lasts as long as this object, however often that is opened and closed."""


class InMemoryKnowledge(_OpenFromCreation, SqlKnowledge):
    """Knowledge in memory. It lasts as long as this object, however often that is opened and closed."""


def _database() -> tuple[sqlite3.Connection, str]:
    """Return a database that has riglm's tables, and its URL; it lasts as long as the connection."""
    name = f"file:/riglm-{uuid4().hex}?vfs=memdb"
    anchor = sqlite3.connect(name, uri=True, check_same_thread=False)
    _fill()(anchor)
    return anchor, f"sqlite:///{name}"


@cache
def _fill() -> Callable[[sqlite3.Connection], None]:
    with memory_database() as url:
        upgrade(url)
        source = sqlite3.connect(url.removeprefix("sqlite:///"), uri=True, check_same_thread=False)
    return source.backup
