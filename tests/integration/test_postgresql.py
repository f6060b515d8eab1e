"""PostgreSQL that hangs, closes connections, refuses and fails over: always `AnalyticsUnavailableError`, in time."""

import json
import os
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from riglm.adapters.analytics import postgresql, tables
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.domain.errors import AnalyticsUnavailableError
from riglm.domain.session import Session
from riglm.ports.analytics import LearnedPairsDeleted, SessionClosed
from tests.records import a_learned_pair, a_session, an_invocation
from tests.stores.postgres import Databases
from tests.stores.proxy import FaultProxy
from tests.waiting import WAIT_SECONDS, wait_until

DEADLINE = WAIT_SECONDS
SHORT = 2.0

HOLDER = """
import sys
from riglm.adapters.analytics.sql import SqlAnalytics
with SqlAnalytics(sys.argv[1]) as store, store.maintenance_lease() as mine:
    print(mine, flush=True)
    sys.stdin.read()
"""


STARTER = """
import sys
from tests.stores.postgres import PostgresServer
with PostgresServer() as server:
    print(server.directory, flush=True)
    sys.stdin.read()
"""


def name_of(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


def changed(url: str, **parameters: object) -> str:
    """The URL with other parameters."""
    return f"postgresql:///?{urlencode({**conninfo_to_dict(url), **parameters})}"


def server_of(url: str) -> socket.socket:
    """A connection to the server itself."""
    place = conninfo_to_dict(url)
    host, port = str(place.get("host", "localhost")), str(place.get("port", "5432"))
    if not host.startswith("/"):
        return socket.create_connection((host, int(port)), 10)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{host}/.s.PGSQL.{port}")
    return connection


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[FaultProxy]:
    with FaultProxy(lambda: server_of(postgres_url)) as between:
        yield between


@pytest.fixture
def proxied(postgres_url: str, proxy: FaultProxy) -> str:
    """The test's database behind the proxy."""
    return changed(postgres_url, host="127.0.0.1", port=proxy.port, sslmode="disable", gssencmode="disable")


@contextmanager
def other_client(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url) as connection:
        yield connection
        connection.rollback()


def stored(url: str) -> int:
    with SqlAnalytics(url) as store:
        return len(store.list_sessions())


def test_a_server_that_hangs_is_unavailable_within_a_bounded_time_and_used_again_after_that(proxy, proxied):
    with SqlAnalytics(proxied, timeout=SHORT) as store:
        store.record_many([a_session()])
        proxy.freeze()
        with pytest.raises(AnalyticsUnavailableError, match=r"did not answer within 3 s"):
            store.record_many([a_session()])
        with pytest.raises(AnalyticsUnavailableError, match="timeout"):
            store.record_many([a_session()])
        proxy.thaw()
        store.record_many([a_session()])
        assert len(store.list_sessions()) >= 2


def test_a_store_is_not_opened_on_a_server_that_hangs(proxy, proxied):
    proxy.freeze()
    with pytest.raises(AnalyticsUnavailableError, match="timeout"), SqlAnalytics(proxied, timeout=SHORT):
        pass


@pytest.mark.parametrize(
    ("given", "taken"),
    [("connect_timeout=0", "5"), ("connect_timeout=-1", "5"), ("connect_timeout=60", "5"), ("connect_timeout=3", "3")],
)
def test_a_url_may_make_the_wait_for_a_server_shorter_but_not_longer_or_endless(given, taken):
    parameters = postgresql._parameters(f"postgresql://127.0.0.1/x?{given}&keepalives=0&keepalives_idle=0", 5.0)
    assert str(parameters["connect_timeout"]) == taken
    assert (parameters["keepalives"], parameters["keepalives_idle"]) == (1, 5)


def test_a_connection_that_breaks_in_mid_transaction_stores_nothing(proxy, proxied, postgres_url):
    with SqlAnalytics(proxied) as store:

        def broken_off():
            with store._database.writing() as connection:
                connection.exec_driver_sql("DELETE FROM session")
                proxy.reset()
                connection.exec_driver_sql("DELETE FROM invocation")

        kept, session = a_session(started_at=1.0), a_session()
        store.record_many([kept])
        with pytest.raises(AnalyticsUnavailableError):
            broken_off()
        store.record_many([session, an_invocation(session, "read")])
        assert [each.session.id for each in store.list_sessions()] == [session.id, kept.id]


def test_records_whose_answer_was_lost_are_stored_once_when_they_come_again(proxy, proxied, postgres_url):
    session = a_session()
    records = [session, *(an_invocation(session, "read") for _ in range(3))]
    with SqlAnalytics(proxied) as store:
        proxy.lose_the_answer_to(b"COMMIT")
        with pytest.raises(AnalyticsUnavailableError):
            store.record_many(records)
        wait_until(lambda: stored(postgres_url) == 1)
        store.record_many(records)
        assert [each.invocations for each in store.list_sessions()] == [3]


def test_connections_that_the_server_ended_while_they_were_idle_are_replaced_without_a_failure(postgres, postgres_url):
    with SqlAnalytics(postgres_url) as store:
        store.record_many([a_session()])
        postgres.execute(
            sql.SQL("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = {}").format(
                sql.Literal(name_of(postgres_url))
            )
        )
        store.record_many([a_session()])
        assert len(store.list_sessions()) == 2


def test_a_server_that_fails_over_to_read_only_is_left_for_the_one_that_takes_over(postgres, postgres_url):
    database = sql.Identifier(name_of(postgres_url))

    def become(read_only: str) -> None:
        change = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
        postgres.execute(change.format(database, sql.SQL(read_only)))

    become("on")
    with SqlAnalytics(postgres_url) as store:
        for _ in range(2):
            with pytest.raises(AnalyticsUnavailableError, match="read-only"):
                store.record_many([a_session()])
        assert list(store.list_sessions()) == []
        with pytest.raises(AnalyticsUnavailableError, match="read-only"):
            store.record_many([a_session()])
        become("off")
        store.record_many([a_session()])
        assert len(store.list_sessions()) == 1


@pytest.fixture
def limited(postgres: Databases, postgres_url: str) -> Iterator[str]:
    """The test's database for a user who may have one connection."""
    role = f"user_of_{name_of(postgres_url)}"
    make = "CREATE ROLE {} LOGIN PASSWORD 's3cret' CONNECTION LIMIT 1"
    postgres.execute(sql.SQL(make).format(sql.Identifier(role)))
    grant = "GRANT ALL ON ALL TABLES IN SCHEMA public TO {}"
    postgres.execute(sql.SQL(grant).format(sql.Identifier(role)), name_of(postgres_url))
    yield changed(postgres_url, user=role, password="s3cret")
    postgres.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)), name_of(postgres_url))
    postgres.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_a_store_works_with_one_connection_and_another_waits_for_it_to_be_free(limited):
    with SqlAnalytics(limited) as store:
        session = a_session()
        store.record_many([session, an_invocation(session, "read")])
        store.refresh_cooccurrences(1.0)
        assert len(store.list_sessions()) == 1
        with pytest.raises(AnalyticsUnavailableError, match="too many connections") as raised, SqlAnalytics(limited):
            pass
        assert "s3cret" not in str(raised.value)
    wait_until(lambda: is_open(limited))


def is_open(url: str) -> bool:
    try:
        return stored(url) == 1
    except AnalyticsUnavailableError:
        return False


def test_a_row_that_another_client_holds_is_waited_for_no_longer_than_the_timeout(postgres_url):
    session = a_session()
    with SqlAnalytics(postgres_url, timeout=SHORT) as store:
        store.record_many([session])
        with other_client(postgres_url) as other:
            other.execute("UPDATE session SET ended_at = 1")
            with pytest.raises(AnalyticsUnavailableError, match="timeout"):
                store.record_many([SessionClosed(session_id=session.id, ended_at=1005.0)])
        store.record_many([SessionClosed(session_id=session.id, ended_at=1005.0)])
        assert store.list_sessions()[0].session.ended_at == 1005.0


def test_a_deadlock_that_the_server_ends_is_tried_again(postgres_url):
    mine, others = a_session(), a_session()
    with SqlAnalytics(postgres_url, timeout=DEADLINE) as store:
        store.record_many([mine, others])
        for _ in range(10):  # until it is the store's transaction, and not the other one, that the server ends
            if ends_the_stores_transaction(store, postgres_url, mine, others):
                break
        else:
            pytest.fail("the server ended the other transaction each time")
        assert {each.session.ended_at for each in store.list_sessions()} == {1007.0}


def ends_the_stores_transaction(store: SqlAnalytics, url: str, mine: Session, others: Session) -> bool:
    """Make two transactions wait for each other; whether the other one survived, so that the store's was ended."""
    ends = [SessionClosed(session_id=each.id, ended_at=1007.0) for each in (mine, others)]
    end_now = "UPDATE session SET ended_at = 1 WHERE id = %s"
    with other_client(url) as other:
        other.execute(end_now, [others.id])
        storing = threading.Thread(target=store.record_many, args=(ends,))
        storing.start()
        wait_until(lambda: waits_for_a_lock(url))
        try:
            other.execute(end_now, [mine.id])
            survived = True
        except psycopg.errors.DeadlockDetected:
            survived = False
        other.rollback()
        storing.join(DEADLINE)
    return survived


def waits_for_a_lock(url: str) -> bool:
    with psycopg.connect(url) as connection:
        query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        return connection.execute(query).fetchone() is not None


def test_a_database_that_cannot_hold_every_name_is_refused(postgres):
    name = f"riglm_test_ascii_{a_session().id.hex}"
    make = "CREATE DATABASE {} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
    postgres.execute(sql.SQL(make).format(sql.Identifier(name)))
    try:
        with (
            pytest.raises(AnalyticsUnavailableError, match=r"encoding SQL_ASCII.*UTF8"),
            SqlAnalytics(postgres.url_of(name)),
        ):
            pass
    finally:
        postgres.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:s3cret@127.0.0.1:1/db",
        "postgresql://user@127.0.0.1:1/db?password=s3cret",
        "postgresql://user:s3cret%zz@127.0.0.1/db",
        "postgresql://user:s3cret@127.0.0.1:port/db",
        "postgresql://user:s3cret@127.0.0.1:1/db?nonsense=1",
    ],
)
def test_a_server_that_cannot_be_reached_is_unavailable_and_its_password_is_not_told(url):
    with pytest.raises(AnalyticsUnavailableError) as raised, SqlAnalytics(url, timeout=SHORT):
        pass
    told = "".join(traceback.format_exception(raised.value))
    assert "s3cr" not in told
    assert "\n" not in str(raised.value)


def test_a_holder_of_the_lease_that_is_killed_holds_it_no_longer(postgres_url, tmp_path):
    for url in (postgres_url, f"sqlite:///{tmp_path / 'usage.db'}"):
        with (
            SqlAnalytics(url) as store,
            subprocess.Popen(
                [sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as holder,
        ):
            assert holder.stdout is not None
            assert holder.stdout.readline() == "True\n"
            assert not got(store)
            holder.kill()
            holder.wait(DEADLINE)
            wait_until(lambda store=store: got(store))


def got(store: SqlAnalytics) -> bool:
    with store.maintenance_lease() as mine:
        return mine


def test_a_lease_is_of_one_schema_of_a_database(postgres_url):
    apart = changed(postgres_url, options="-csearch_path=apart")
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE SCHEMA apart")
    with SqlAnalytics(postgres_url) as store, SqlAnalytics(apart) as other:
        store.record_many([a_session()])
        assert list(other.list_sessions()) == []
        with store.maintenance_lease() as mine, other.maintenance_lease() as theirs:
            assert (mine, theirs) == (True, True)


def test_a_lease_outlives_the_time_that_a_transaction_may_idle(postgres_url, monkeypatch):
    monkeypatch.setattr(postgresql, "_IDLE_SECONDS", 1)
    with SqlAnalytics(postgres_url) as store, SqlAnalytics(postgres_url) as other:
        with store.maintenance_lease() as mine, other._database.reading() as connection:
            connection.exec_driver_sql("SELECT pg_sleep(1.5)")
            assert mine
            assert not got(other)
        assert got(other)


def test_a_missing_driver_is_told_with_the_command_that_installs_it():
    code = """
import sys
sys.modules["psycopg"] = None
from riglm.adapters.analytics.sql import SqlAnalytics
SqlAnalytics("postgresql://host/db").__enter__()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "AnalyticsUnavailableError" in done.stderr
    assert "pip install 'riglm[postgresql]'" in done.stderr


def test_a_server_for_tests_ends_with_a_process_that_is_killed():
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as starter:
        assert starter.stdout is not None
        directory = Path(starter.stdout.readline().strip())
        assert directory.is_dir()
        starter.kill()
        wait_until(lambda: not directory.exists())


NEAREST = """
SELECT pair.tool FROM learned_vector JOIN learned_pair AS pair ON pair.id = pair_id
WHERE pair.model = 'minilm' AND pair.dimensions = %s ORDER BY embedding <=> %s::vector, pair.tool LIMIT 3
"""


def nearest(url: str, vector: Any) -> list[str]:
    with psycopg.connect(url) as connection:
        return [tool for (tool,) in connection.execute(NEAREST, [len(vector), str(vector.tolist())])]


def test_sql_finds_the_learned_pairs_that_are_nearest_as_numpy_does(postgres_url):
    random = np.random.default_rng(7)
    vectors = random.standard_normal((50, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = [a_learned_pair(tool=f"tool_{at}", vector=vector) for at, vector in enumerate(vectors)]
    with SqlAnalytics(postgres_url) as store:
        store.record_many([*pairs, a_learned_pair(tool="other", vector=vectors[0, :4])])
    for wanted in vectors[:5] + np.float32(0.1):
        assert nearest(postgres_url, wanted) == [f"tool_{at}" for at in np.argsort(-(vectors @ wanted))[:3]]


def test_a_vector_follows_its_learned_pair(postgres_url):
    east, north = np.array([1, 0], np.float32), np.array([0, 1], np.float32)
    pair, other = a_learned_pair(vector=east), a_learned_pair(tool="write", vector=np.array([-1, 0], np.float32))
    with SqlAnalytics(postgres_url) as store:
        store.record_many([pair, other])
        store.record_many([replace(pair, vector=north, updated_at=999.0)])
        assert nearest(postgres_url, east) == ["read", "write"]
        store.record_many([replace(pair, vector=-east - east, updated_at=1001.0)])
        store.record_many([replace(other, vector=north, updated_at=1001.0)])
        assert nearest(postgres_url, east) == ["write", "read"]
        store.record_many([LearnedPairsDeleted(ids=(pair.id,))])
        assert nearest(postgres_url, east) == ["write"]
        store.record_many([a_learned_pair(vector=np.ones(20_000, np.float32)), a_learned_pair(vector=east[:0])])
        assert len(store.list_learned_pairs("minilm")) == 3


def test_without_the_extension_pairs_are_kept_and_an_upgrade_takes_it_up_when_it_comes(postgres_url):
    with psycopg.connect(postgres_url) as connection:
        connection.execute("DROP EXTENSION vector CASCADE")
    pair = a_learned_pair()
    with SqlAnalytics(postgres_url) as store:
        store.record_many([pair])
        assert [each.id for each in store.list_learned_pairs("minilm")] == [pair.id]
    tables.upgrade(postgres_url)
    assert nearest(postgres_url, pair.vector) == ["read"]


def test_a_user_who_may_not_add_the_extension_has_a_store_without_it(limited, postgres, postgres_url):
    role = sql.Identifier(str(conninfo_to_dict(limited)["user"]))
    postgres.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT -1").format(role))
    postgres.execute(sql.SQL("GRANT CREATE ON SCHEMA public TO {}").format(role), name_of(postgres_url))
    postgres.execute("DROP EXTENSION vector CASCADE", name_of(postgres_url))
    assert tables.upgrade(limited).pending == ()
    with SqlAnalytics(limited) as store:
        store.record_many([a_learned_pair()])
        assert len(store.list_learned_pairs("minilm")) == 1


CONVERSATION = """\
{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},\
"clientInfo":{"name":"try","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
"""


@contextmanager
def conversation(url: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A riglm with this store; its client was greeted and has asked for a list."""
    settings = {"RIGLM_STORAGE__URL": url, "RIGLM_DATA_DIR": str(directory), "RIGLM_LOGGING__LEVEL": "debug"}
    with subprocess.Popen(
        [sys.executable, "-m", "riglm", "run", "--", sys.executable, "-m", "riglm.demo.server", "office"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **settings},
        cwd=directory,
        text=True,
    ) as riglm:
        assert riglm.stdin is not None
        riglm.stdin.write(CONVERSATION)
        riglm.stdin.flush()
        yield riglm
        assert riglm.wait(DEADLINE) == 0


@pytest.mark.usefixtures("riglm_is_forked")
def test_a_riglm_serves_while_postgresql_cannot_be_reached_and_logs_no_password(tmp_path):
    with conversation("postgresql://me:s3cret@127.0.0.1:1/db", tmp_path) as riglm:
        assert riglm.stdout is not None
        assert any(json.loads(line).get("id") == 2 for line in riglm.stdout)
        assert riglm.stderr is not None
        log = next(line for line in riglm.stderr if "127.0.0.1:1/db" in line)
        log += riglm.communicate(timeout=DEADLINE)[1]
    assert "s3cret" not in log


def test_of_several_servers_in_the_url_the_one_that_takes_writes_is_used(postgres, postgres_url):
    place = conninfo_to_dict(postgres_url)
    hosts, ports = f"127.0.0.1,{place.get('host', 'localhost')}", f"1,{place.get('port', '5432')}"
    several = changed(postgres_url, host=hosts, port=ports, target_session_attrs="read-write")
    with SqlAnalytics(several) as store:
        store.record_many([a_session()])
        assert len(store.list_sessions()) == 1
    change = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on")
    postgres.execute(change.format(sql.Identifier(name_of(postgres_url))))
    with pytest.raises(AnalyticsUnavailableError, match="read-only"), SqlAnalytics(several):
        pass
