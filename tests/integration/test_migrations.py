"""Migrations lead to the tables that the code uses, from nothing, once, whoever runs them."""

import multiprocessing
import sqlite3

import alembic.command
import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import func, insert, inspect, select, text

from riglm.adapters.analytics import engine as engines
from riglm.adapters.analytics import tables
from riglm.adapters.analytics.engine import make_engine, writing
from riglm.adapters.analytics.rows import learned_pair_row
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.analytics.tables import SCHEMA_REVISION, metadata
from riglm.domain.errors import AnalyticsUnavailableError, SchemaTooNewError
from riglm.domain.retention import ErasureRequest, ErasureScope, Expiry, RemovedCounts
from riglm.domain.session import uuid7
from tests.records import a_learned_pair, a_session, an_invocation
from tests.waiting import WAIT_SECONDS

ALL = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012", "0013")
"""Every migration, oldest first."""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "usage.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, file):
    """An empty place for a store."""
    return f"sqlite:///{file}" if request.param == "sqlite" else request.getfixturevalue("empty_postgres_url")


@pytest.fixture
def other_url(url, tmp_path, postgres):
    """Another one of the same kind."""
    if url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path / 'other.db'}"
    else:
        with postgres.empty() as empty:
            yield empty


def execute(url, *statements):
    engine = make_engine(url)
    with writing(engine) as connection:
        for statement in statements:
            connection.execute(statement)
    engine.dispose()


def set_revision(url, revision):
    execute(url, text("UPDATE alembic_version SET version_num = :new").bindparams(new=revision))


def migrate(url, revision="head"):
    engine = make_engine(url)
    with writing(engine) as connection:
        config = tables.alembic_config()
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, revision)
    engine.dispose()


def described(url):
    engine = make_engine(url)
    with engine.connect() as connection:
        inspector = inspect(connection)
        found = {
            table: (
                {column["name"]: {**column, "type": str(column["type"])} for column in inspector.get_columns(table)},
                sorted(inspector.get_indexes(table), key=lambda one: one["name"]),
                inspector.get_pk_constraint(table)["constrained_columns"],
            )
            for table in inspector.get_table_names()
            if table != tables.VECTOR_TABLE  # of a type that SQLAlchemy does not know
        }
    engine.dispose()
    return found


def test_the_migrations_make_the_tables_that_the_code_uses(url):
    migrate(url)
    engine = make_engine(url)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()
    assert differences == []


def test_a_new_store_has_what_the_migrations_would_have_made(url, other_url):
    tables.upgrade(url)
    migrate(other_url)
    tables.upgrade(other_url)
    assert described(url) == described(other_url)
    assert tables.status(url).current == tables.status(other_url).current


def test_the_newest_migration_is_the_one_that_the_code_expects():
    assert ScriptDirectory.from_config(tables.alembic_config()).get_heads() == [SCHEMA_REVISION]


def test_an_upgrade_makes_a_store_and_a_second_one_changes_nothing(url):
    assert tables.upgrade(url).current == SCHEMA_REVISION
    once = described(url)
    assert tables.upgrade(url).current == SCHEMA_REVISION
    assert described(url) == once


def fill(url, revision):
    """Put a row into every table that there was at a revision, as a riglm of that time did; the session's id."""
    session, tools = uuid7(), uuid7()
    happened = {"session_id": session, "timestamp": 2.0}
    rows = {
        tables.toolset: {"id": tools, "names": ["read", "write"]},
        tables.session: {
            "id": session,
            "started_at": 1.0,
            "era": "handshake",
            "transport": "stdio",
            "method": "process",
            "confidence": "connection",
            "client_name": "old",
            "client_version": "1",
            "client_id": "",
            "principal": "p",
            "protocol_version": "",
            "keys": {},
            "metadata": {},
            "tools_available": tools,
        },
        tables.invocation: {
            **happened,
            "id": uuid7(),
            "tool": "read",
            "upstream": "files",
            "duration_ms": 1.5,
            "success": True,
            "sequence_number": 1,
            "arguments_hash": "",
            "found": "listed",
        },
        tables.exposure: {**happened, "id": uuid7(), "shown": tools, "available": tools, "predictor": "", "reason": ""},
    }
    execute(url, *(table.insert().values(row) for table, row in rows.items()))
    if revision > "0001":
        execute(url, tables.learned_pair.insert().values(learned_pair_row(a_learned_pair(tool="old"))))
    return session


@pytest.mark.parametrize(
    ("url", "revision"),
    [*(("sqlite", each) for each in ALL[:-1]), *(("postgresql", each) for each in ("0001", "0006", "0012"))],
    indirect=["url"],
)
def test_a_store_of_an_earlier_schema_keeps_its_rows_and_is_used_as_any_other(url, revision):
    migrate(url, revision)
    session = fill(url, revision)
    assert tables.status(url).pending == ALL[ALL.index(revision) + 1 :]
    with SqlAnalytics(url) as store:
        [shown] = store.list_exposures(session)
        assert (shown.shown, shown.mode, shown.surface, shown.tokens_shown) == (("read", "write"), "off", "", 0)
        [recorded] = store.list_training_sessions()
        assert [call.tool for call in recorded.calls] == ["read"]
        store.record_many([a_learned_pair(tool="new", updated_at=2000.0)])
        kept = ["new", "old"] if revision > "0001" else ["new"]
        assert [pair.tool for pair in store.list_learned_pairs("minilm")] == kept
    assert tables.status(url).pending == ()


@pytest.mark.parametrize("revision", ["0002"])
def test_vectors_of_what_was_asked_are_gone_after_an_upgrade(url, revision):
    migrate(url, revision)
    execute(url, insert(tables.cached_vector).values(model="minilm", hash="h", dimensions=1, data=b"0000", used_at=0.0))
    tables.upgrade(url)
    engine = make_engine(url)
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(tables.cached_vector)) == 0
    engine.dispose()


def hashed(name):
    return name.encode().hex().zfill(32)


def test_forgetting_goes_on_with_what_was_known_before_an_upgrade(url):
    migrate(url, "0003")
    session = fill(url, "0003")
    pair = a_learned_pair()
    execute(
        url,
        tables.learned_pair.insert().values(learned_pair_row(pair)),
        tables.training_update.insert().values(pair_id=pair.id, session_id=session),
        tables.session.update().values(ended_at=3.0, client_id="c"),
        tables.forgotten.insert().values(whose="client", key="somebody", at=9.0, is_done=True),
    )
    with SqlAnalytics(url, names=hashed) as store:
        removed = sum(store.purge(Expiry.of_all(100.0, now=5000.0)), RemovedCounts())
        assert (removed.sessions, removed.learned_pairs) == (1, 0)
        assert (
            sum(
                store.erase(ErasureRequest(whose=ErasureScope.CLIENT, key=hashed("old"), at=5000.0)), RemovedCounts()
            ).learned_pairs
            == 1
        )
        assert [each.tool for each in store.list_learned_pairs("minilm")] == ["old"]
    engine = make_engine(url)
    with engine.connect() as connection:
        assert set(connection.scalars(select(tables.forgotten.c.key))) == {hashed("somebody"), hashed("old")}
    engine.dispose()


def test_pgvector_gets_the_pairs_of_a_store_that_had_none(empty_postgres_url):
    migrate(empty_postgres_url, "0002")
    fill(empty_postgres_url, "0002")
    tables.upgrade(empty_postgres_url)
    with psycopg.connect(empty_postgres_url) as connection:
        assert connection.execute("SELECT embedding::text FROM learned_vector").fetchall() == [("[0.6,0.8]",)]


def test_to_an_older_riglm_that_is_still_open_a_store_that_lost_a_column_is_unavailable(url):
    """Its records wait in its spool; a record that is refused would be lost."""
    session = a_session()
    with SqlAnalytics(url) as store:
        execute(url, text("ALTER TABLE invocation DROP COLUMN found"))
        with pytest.raises(AnalyticsUnavailableError):
            store.record_many([session, an_invocation(session, "read")])


@pytest.mark.parametrize("revision", [None, "0001"])
def test_processes_that_upgrade_at_once_all_find_the_newest_schema(url, revision):
    if revision:
        migrate(url, revision)
    context = multiprocessing.get_context("fork")  # a new interpreter takes a second to load Alembic
    ready, found = context.Barrier(4, timeout=WAIT_SECONDS), context.SimpleQueue()

    def upgrade():
        ready.wait()
        found.put(tables.upgrade(url).current)

    upgraders = [context.Process(target=upgrade) for _ in range(4)]
    for each in upgraders:
        each.start()
    for each in upgraders:
        each.join(WAIT_SECONDS)
    assert [each.exitcode for each in upgraders] == [0] * 4
    assert [found.get() for _ in upgraders] == [SCHEMA_REVISION] * 4


class Busy:
    """A connection to a file that another process is just about to change; the driver says so without waiting."""

    def __init__(self, times, code=sqlite3.SQLITE_BUSY):
        self.times = times
        self.code = code

    def execute(self, _):
        self.times -= 1
        if self.times >= 0:
            error = sqlite3.OperationalError("as the test wants")
            error.sqlite_errorcode = self.code
            raise error


def test_a_new_file_that_another_process_is_changing_is_tried_again(monkeypatch):
    cursor = Busy(3)
    engines.use_wal(cursor)
    assert cursor.times == -1
    monkeypatch.setattr(engines, "_WAL_SECONDS", 0.02)
    for hopeless in (Busy(10**9), Busy(1, sqlite3.SQLITE_READONLY)):
        with pytest.raises(sqlite3.OperationalError, match="as the test wants"):
            engines.use_wal(hopeless)


def test_the_status_of_a_store_that_is_not_there_is_told_without_making_it(file, url):
    found = tables.status(url)
    assert (found.current, found.head, found.pending) == (None, SCHEMA_REVISION, ALL)
    assert not file.exists()
    assert url.startswith("sqlite") or described(url) == {}


def test_a_newer_schema_is_neither_upgraded_nor_written_to(url):
    tables.upgrade(url)
    set_revision(url, "9999")
    once = described(url)
    for ask in (tables.status, tables.upgrade, lambda url: SqlAnalytics(url).__enter__()):
        with pytest.raises(SchemaTooNewError, match=r"schema 9999.*upgrade riglm"):
            ask(url)
    assert described(url) == once


def test_a_store_that_cannot_be_read_is_unavailable(file):
    url = f"sqlite:///{file}"
    file.write_bytes(b"x" * 4096)
    for ask in (tables.status, tables.upgrade):
        with pytest.raises(AnalyticsUnavailableError, match=r"usage\.db"):
            ask(url)


def test_migrations_are_found_inside_an_installed_package(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages" / "riglm" / "migrations"
    installed.mkdir(parents=True)
    monkeypatch.setattr(tables, "__file__", str(installed.parent / "adapters" / "analytics" / "tables.py"))
    assert tables.migrations_directory() == installed
