"""Migrations lead to the tables that the code uses, from nothing, once, whoever runs them."""

import sqlite3
import subprocess
import sys

import alembic.command
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

import riglm
from riglm.adapters.analytics import schema, sqlite
from riglm.adapters.analytics.engine import make_engine, writing
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.analytics.tables import SCHEMA_REVISION, metadata
from riglm.domain.errors import AnalyticsUnavailable, SchemaTooNew
from riglm.domain.identifier import uuid7
from riglm.testing.records import a_learned_pair

UPGRADER = """
import sys
from riglm.adapters.analytics import schema
import alembic.command
print("ready", flush=True)
sys.stdin.readline()
print(schema.upgrade(sys.argv[1]).current)
"""

ALL = ("0001", "0002", "0003")
"""Every migration, oldest first."""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "usage.db"


@pytest.fixture
def url(file):
    return f"sqlite:///{file}"


def shape(file):
    rows = sqlite3.connect(file)
    found = rows.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    rows.close()
    return found


def set_revision(file, revision):
    rows = sqlite3.connect(file)
    rows.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    rows.commit()
    rows.close()


def migrate(url, revision="head"):
    engine = make_engine(url)
    with writing(engine) as connection:
        config = schema.alembic_config()
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


def test_a_new_store_has_what_the_migrations_would_have_made(url, tmp_path):
    schema.upgrade(url)
    other = f"sqlite:///{tmp_path / 'migrated.db'}"
    migrate(other)
    assert described(url) == described(other)
    assert schema.status(url).current == schema.status(other).current


def test_the_newest_migration_is_the_one_that_the_code_expects():
    assert ScriptDirectory.from_config(schema.alembic_config()).get_heads() == [SCHEMA_REVISION]


def test_an_upgrade_makes_a_missing_file_and_a_second_one_changes_nothing(file, url):
    assert schema.upgrade(url).current == SCHEMA_REVISION
    once = shape(file)
    assert schema.upgrade(url).current == SCHEMA_REVISION
    assert shape(file) == once


def test_a_store_of_the_first_schema_keeps_its_rows_and_is_used_as_any_other(file, url):
    migrate(url, "0001")
    session, tools = uuid7(), uuid7()
    rows = sqlite3.connect(file)
    rows.execute('INSERT INTO toolset VALUES (?, \'["read","write"]\')', (tools.bytes,))
    rows.execute(
        "INSERT INTO session VALUES (?, 1.0, NULL, 'handshake', 'stdio', 'process', 'connection', 'old', '1', '', 'p',"
        " '', '{}', '{}', ?)",
        (session.bytes, tools.bytes),
    )
    rows.execute(
        "INSERT INTO invocation VALUES (?, ?, 'read', 'files', 2.0, 1.5, 1, 1, '', NULL, NULL, NULL, 'listed', NULL)",
        (uuid7().bytes, session.bytes),
    )
    rows.execute(
        "INSERT INTO exposure VALUES (?, ?, 1.5, ?, ?, '', 'no filtering')",
        (uuid7().bytes, session.bytes, tools.bytes, tools.bytes),
    )
    rows.commit()
    rows.close()
    assert schema.status(url).pending == ALL[1:]
    with SqlAnalytics(url) as store:
        [shown] = store.list_exposures(session)
        assert (shown.shown, shown.mode, shown.surface, shown.tokens_shown) == (("read", "write"), "off", "", 0)
        [recorded] = store.recent_calls()
        assert [call.tool for call in recorded.calls] == ["read"]
        store.record_many([a_learned_pair(tool="read")])
        assert len(store.list_learned_pairs("minilm")) == 1
    assert schema.status(url).pending == ()


def test_an_older_riglm_that_is_still_open_can_go_on_storing(file, url):
    schema.upgrade(url)
    rows = sqlite3.connect(file)
    rows.execute(
        "INSERT INTO exposure (id, session_id, timestamp, shown, available, predictor, reason)"
        " VALUES (?, ?, 1.0, ?, ?, '', '')",
        [uuid7().bytes] * 4,
    )
    assert rows.execute("SELECT mode, tokens_shown FROM exposure").fetchall() == [("off", 0)]
    rows.close()


def test_an_empty_file_is_upgraded(file, url):
    file.touch()
    assert schema.upgrade(url).pending == ()


def test_processes_that_upgrade_at_once_all_find_the_newest_schema(file, url):
    upgraders = [
        subprocess.Popen(
            [sys.executable, "-c", UPGRADER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for each in upgraders:
        assert each.stdout.readline() == "ready\n"
    for each in upgraders:
        each.stdin.write("go\n")
        each.stdin.flush()
    found = [each.communicate(timeout=60)[0].strip() for each in upgraders]
    assert found == [SCHEMA_REVISION] * 3
    assert [each.returncode for each in upgraders] == [0, 0, 0]


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
    sqlite.use_wal(cursor)
    assert cursor.times == -1
    monkeypatch.setattr(sqlite, "_WAL_SECONDS", 0.02)
    for hopeless in (Busy(10**9), Busy(1, sqlite3.SQLITE_READONLY)):
        with pytest.raises(sqlite3.OperationalError, match="as the test wants"):
            sqlite.use_wal(hopeless)


def test_the_status_of_a_missing_file_is_told_without_making_it(file, url):
    found = schema.status(url)
    assert (found.current, found.head, found.pending) == (None, SCHEMA_REVISION, ALL)
    assert not file.exists()


def test_the_status_of_a_new_store_has_nothing_pending(url):
    schema.upgrade(url)
    found = schema.status(url)
    assert (found.current, found.pending, found.url) == (SCHEMA_REVISION, (), url)


def test_a_newer_schema_is_neither_upgraded_nor_passed_over(file, url):
    schema.upgrade(url)
    set_revision(file, "9999")
    for ask in (schema.status, schema.upgrade):
        with pytest.raises(SchemaTooNew, match=r"schema 9999.*upgrade riglm"):
            ask(url)


def test_a_store_that_cannot_be_read_is_unavailable(file, url):
    file.write_bytes(b"x" * 4096)
    for ask in (schema.status, schema.upgrade):
        with pytest.raises(AnalyticsUnavailable, match=r"usage\.db"):
            ask(url)


def test_a_store_in_memory_can_be_upgraded():
    assert schema.status("sqlite://").pending == ALL
    schema.upgrade("sqlite://")


def test_migrations_are_found_inside_an_installed_package(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages" / "riglm" / "migrations"
    installed.mkdir(parents=True)
    monkeypatch.setattr(riglm, "__file__", str(installed.parent / "__init__.py"))
    assert schema.migrations_directory() == installed


def test_alembic_can_be_run_by_hand(file, url):
    root = schema.migrations_directory().parent
    command = [sys.executable, "-m", "alembic", "-x", f"url={url}"]
    subprocess.run([*command, "upgrade", "head"], cwd=root, check=True, capture_output=True, timeout=60)
    subprocess.run([*command, "check"], cwd=root, check=True, capture_output=True, timeout=60)
    assert schema.status(url).pending == ()
