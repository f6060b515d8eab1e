"""Short forms of `benchmarks.durability`: processes that are killed, stores that are away, and spools that are left."""

import asyncio
import contextlib
import resource
import signal
import sqlite3
import subprocess
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from benchmarks.durability.kill import kill

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.spool.file_lock import spool_directory
from riglm.adapters.spool.sqlite_spool import SqliteSpool, survey
from tests.interaction.clients.raw import HANDSHAKE, RawClient
from tests.interaction.clients.stdio import StdioLink
from tests.interaction.stage import Process, Stage
from tests.records import a_session, an_invocation
from tests.started import free_port
from tests.waiting import WAIT_SECONDS, wait_until_async

pytestmark = pytest.mark.timeout(120)

WITHIN_SECONDS = WAIT_SECONDS


@pytest.fixture
def database(stage: Stage) -> Path:
    return stage.folder / "data" / "riglm.db"


@pytest.fixture
def spool(stage: Stage, database: Path) -> Path:
    return spool_directory(stage.folder / "data" / "spool", str(database))


def stored(database: Path) -> int:
    """How many calls are in the database."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM invocation").fetchone()[0])
        except sqlite3.OperationalError:  # the tables are still being made
            return 0


def spooled(spool: Path) -> int:
    """How many records are in spools."""
    return sum(found.records for found in survey(spool))


async def warmed_up(stage: Stage, client: RawClient, database: Path) -> None:
    """A client that has greeted, with its first call in the database."""
    await client.greet()
    await client.request("tools/list")
    assert (await client.call("echo")).result
    await wait_until_async(lambda: stored(database) == 1)


def riglm(stage: Stage) -> StdioLink:
    return stage.pipe(stage.riglm("run", "--", *stage.scripted()), {"RIGLM_FILTERING__ENABLED": "false"})


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_writers_lose_and_double_nothing_that_they_acknowledged(kind: str, tmp_path: Path) -> None:
    findings = kill(kind, 3, 1, tmp_path, lambda *_: None)
    acknowledged = next(each for each in findings if each.what == "acknowledged records")
    assert acknowledged.value > 0
    assert [each for each in findings if each.most == 0 and each.value != 0] == []


async def test_calls_pass_while_the_database_is_locked_and_are_stored_when_it_is_not(
    stage: Stage, database: Path, spool: Path
) -> None:
    async with RawClient(riglm(stage), HANDSHAKE) as client:
        await warmed_up(stage, client, database)
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            for _ in range(20):
                assert (await client.call("echo")).result
            await wait_until_async(lambda: spooled(spool) >= 20)
            other.execute("ROLLBACK")
        await wait_until_async(lambda: stored(database) == 21)
        await wait_until_async(lambda: spooled(spool) == 0)
    assert stage.damage() == []
    assert list(spool.iterdir()) == []


async def test_what_the_database_did_not_take_before_the_end_is_stored_by_the_next_start(
    stage: Stage, database: Path, spool: Path
) -> None:
    link = riglm(stage)
    with ExitStack() as locked:
        async with RawClient(link, HANDSHAKE) as client:
            await warmed_up(stage, client, database)
            other = locked.enter_context(closing(sqlite3.connect(database, isolation_level=None)))
            other.execute("BEGIN EXCLUSIVE")
            for _ in range(20):
                assert (await client.call("echo")).result
        assert link.exit_code == 0
        assert spooled(spool) >= 20
        assert "records wait on disk for the next start" in link.stderr.read_text("utf-8")
    async with RawClient(riglm(stage), HANDSHAKE) as client:
        await client.greet()
        await client.request("tools/list")
        await wait_until_async(lambda: stored(database) == 21)
    with stage.store() as store:
        assert [each.invocations for each in store.list_sessions() if each.invocations] == [21]
        assert all(each.session.ended_at is not None for each in store.list_sessions())


async def test_calls_pass_while_the_disk_is_full_and_are_stored_when_there_is_room(
    stage: Stage, database: Path, spool: Path
) -> None:
    link = riglm(stage)
    async with RawClient(link, HANDSHAKE) as client:
        await warmed_up(stage, client, database)
        no_limit = resource.prlimit(link.process.pid, resource.RLIMIT_FSIZE)
        small = (database.with_name("riglm.db-wal").stat().st_size, no_limit[1])  # no file grows beyond that
        resource.prlimit(link.process.pid, resource.RLIMIT_FSIZE, small)
        for _ in range(20):
            assert (await client.call("echo")).result
        await wait_until_async(lambda: spooled(spool) >= 20)
        assert stored(database) == 1
        resource.prlimit(link.process.pid, resource.RLIMIT_FSIZE, no_limit)
        await wait_until_async(lambda: stored(database) == 21)
    assert stage.damage() == []


async def test_a_damaged_spool_of_a_process_that_is_gone_is_stored_but_for_what_is_damaged(
    stage: Stage, database: Path, spool: Path
) -> None:
    session = a_session()
    with SqliteSpool(spool) as left:
        left.append([session, *(an_invocation(session, "read") for _ in range(9))])
    (file,) = spool.glob("*.db")
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE record SET checksum = 0 WHERE id IN (5, 10)")
    link = riglm(stage)
    async with RawClient(link, HANDSHAKE) as client:
        await client.greet()
        await client.request("tools/list")
        await wait_until_async(lambda: not file.exists())
    with SqlAnalytics(f"sqlite:///{database}") as store:
        assert len(store.list_invocations(session.id)) == 7
    assert "2 records in the spool are damaged, and lost" in link.stderr.read_text("utf-8")
    assert list(spool.iterdir()) == []


async def test_a_second_server_on_a_data_directory_is_refused_until_the_first_is_gone(stage: Stage) -> None:
    ports = [free_port(), free_port()]
    env = {**stage.env, "RIGLM_FILTERING__ENABLED": "false"}
    command = [stage.riglm("serve", "--port", str(port), "--", *stage.scripted()) for port in ports]
    first = Process(command[0], env, stage.folder / "first.stderr")
    try:
        first.wait_for_port(ports[0])
        done = await asyncio.to_thread(
            subprocess.run, command[1], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2
        assert f"process {first.pid}, 127.0.0.1 port {ports[0]}" in done.stderr
        assert str(stage.folder / "data") in done.stderr
        assert "RIGLM_DATA_DIR" in done.stderr
        assert "Traceback" not in done.stderr
        assert first.running
    finally:
        first.end(signal.SIGKILL)
    second = Process(command[1], env, stage.folder / "second.stderr")
    try:
        await wait_until_async(lambda: '"listening"' in second.stderr.read_text("utf-8"))
    finally:
        assert second.end() == 0
    assert not (stage.folder / "data" / "serve.lock").exists()
