"""Reads the store from outside: nothing is created or changed, and no lock is waited for."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from riglm.adapters.analytics.engine import database_file, make_engine, reading, safe_url, translated
from riglm.adapters.analytics.maintenance import get_reliable_time
from riglm.adapters.analytics.rows import count
from riglm.adapters.analytics.store_file import connect
from riglm.adapters.analytics.tables import (
    current_revision,
    exposure,
    invocation,
    kg_entity,
    kg_observation,
    pending_after,
    session,
    thought,
    tool_pin,
)
from riglm.domain.client_support import NO_TOOL_SEARCH
from riglm.domain.doctor import KnowledgeTotals, RecordedClient, StoreStatus

_MAX_CLIENTS: Final = 20


def inspect_store(url: str, *, timeout: float) -> StoreStatus:
    """Return the state of the database at a URL, of SQLite or PostgreSQL; each question may take `timeout` seconds.

    Raises:
        AnalyticsUnavailableError: it cannot be read; `SchemaTooNewError` when a newer riglm wrote it.
    """
    file = database_file(url)
    about: dict[str, Any] = {"place": str(file) if file else safe_url(url)}
    with translated(url):
        if file is not None:
            about["free_bytes"] = _free(file.parent)
            if not file.exists():
                return StoreStatus(schema=None, **about)
            files = [file.with_name(file.name + ending) for ending in ("", "-wal")]
            about["size_bytes"] = sum(each.stat().st_size for each in files if each.exists())
        with _engine(url, file, timeout) as engine, reading(engine, seconds=timeout) as connection:
            current = current_revision(connection)
            if file is None:
                size = connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one()
                about["size_bytes"] = size
            pending = pending_after(current, url)
            if not pending:
                about |= _recorded(connection)
    return StoreStatus(schema=current, pending=pending, **about)


@contextmanager
def _engine(url: str, file: Path | None, timeout: float) -> Iterator[sa.Engine]:
    if file is None:
        engine = make_engine(url, timeout=timeout)
    else:
        opened = partial(connect, file.resolve(), "ro", timeout)
        engine = sa.create_engine("sqlite://", creator=opened, poolclass=NullPool, hide_parameters=True)
    try:
        yield engine
    finally:
        engine.dispose()


def _recorded(connection: sa.Connection) -> dict[str, Any]:
    latest = (sa.func.max(invocation.c.timestamp), sa.func.max(exposure.c.timestamp), sa.func.max(session.c.started_at))
    times = [connection.execute(sa.select(each)).scalar_one() or 0.0 for each in latest]
    now = time.time()
    return {
        "seconds_ahead": now - get_reliable_time(connection, now, now),
        "sessions": count(connection, session),
        "newest": max(times),
        "clients": _clients(connection),
        "knowledge": _knowledge(connection),
        "changed_tools": _changed_tools(connection),
    }


def _clients(connection: sa.Connection) -> tuple[RecordedClient, ...]:
    last, name = sa.func.max(session.c.started_at), session.c.client_name
    query = sa.select(name, last, sa.func.count()).group_by(name).order_by(last.desc()).limit(_MAX_CLIENTS)
    clients = []
    for client, at, number in connection.execute(query).all():
        columns = (session.c.client_version.label("version"), session.c.era, session.c.transport, session.c.metadata)
        mine = sa.select(*columns).where(name == client, session.c.started_at == at).limit(1)
        details = dict(connection.execute(mine).mappings().one())
        why = details.pop("metadata").get(NO_TOOL_SEARCH, "")
        clients.append(RecordedClient(name=client, last_seen=at, sessions=number, no_tool_search=why, **details))
    return tuple(clients)


def _changed_tools(connection: sa.Connection) -> tuple[tuple[str, str], ...]:
    is_changed = (tool_pin.c.seen_digest != "") & (tool_pin.c.seen_digest != tool_pin.c.digest)
    query = sa.select(tool_pin.c.server, tool_pin.c.name).where(is_changed).order_by(tool_pin.c.server, tool_pin.c.name)
    return tuple((server, name) for server, name in connection.execute(query))


def _knowledge(connection: sa.Connection) -> KnowledgeTotals:
    pieces = without = 0
    for table in (thought, kg_entity, kg_observation):
        all_, embedded = connection.execute(
            sa.select(sa.func.count(), sa.func.count(table.c.model)).select_from(table)
        ).one()
        pieces += all_
        without += all_ - embedded
    return KnowledgeTotals(pieces=pieces, without_vector=without)


def _free(directory: Path) -> int | None:
    there = next((each for each in (directory, *directory.absolute().parents) if each.exists()), None)
    return None if there is None else shutil.disk_usage(there).free
