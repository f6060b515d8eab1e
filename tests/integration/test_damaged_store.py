"""A damaged database under the whole of riglm: calls pass, what comes is recorded, and commands say what to do."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.interaction.clients.raw import HANDSHAKE, RawClient
from tests.interaction.stage import Stage
from tests.preloaded import riglm_command
from tests.waiting import WAIT_SECONDS, wait_until_async

pytestmark = pytest.mark.timeout(120)

WITHIN_SECONDS = WAIT_SECONDS
NO_DATABASE = b"a letter to somebody, and no database at all " * 500

COMMANDS = {
    "status": ["db", "status"],
    "upgrade": ["db", "upgrade"],
    "purge": ["db", "purge"],
    "vacuum": ["db", "vacuum"],
    "forget": ["db", "forget", "--client", "somebody", "--unseen", "--yes"],
    "export": ["db", "export", "--out", "export"],
    "sessions": ["sessions"],
}


@pytest.fixture
def database(stage: Stage) -> Path:
    file = stage.folder / "data" / "riglm.db"
    file.parent.mkdir()
    return file


def destroyed(database: Path) -> None:
    """A database of riglm that was overwritten: what it made beside it is there still."""
    database.write_bytes(NO_DATABASE)
    database.with_name("riglm.db-guard").touch()


def aside(database: Path) -> list[Path]:
    """The files that were set aside, without what belongs to them."""
    return [each for each in database.parent.glob("riglm.db.corrupt-*") if not each.name.endswith(("-wal", "-shm"))]


def stored(database: Path, table: str = "invocation") -> int:
    """How many calls, or rows of another table, are in the database."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
            return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.DatabaseError:  # damaged still, set aside, or its tables are being made
        return 0


def overwrite(database: Path) -> None:
    """Write back what the journal holds, and then over all of it."""
    script = (
        "import sqlite3, sys, pathlib; c = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None); "
        "c.execute('UPDATE invocation SET success = success'); "
        "assert c.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone()[0] == 0; "
        "file = open(sys.argv[1], 'r+b'); file.write(bytes(pathlib.Path(sys.argv[1]).stat().st_size))"
    )
    subprocess.run([sys.executable, "-c", script, database], check=True, timeout=60)


def commanded(stage: Stage, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        riglm_command(*COMMANDS[command]),
        cwd=stage.folder,
        env=stage.env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("filtering", ["true", "false"])
async def test_calls_pass_and_are_recorded_when_the_database_is_none(
    stage: Stage, database: Path, filtering: str
) -> None:
    destroyed(database)
    link = stage.pipe(stage.riglm("run", "--", *stage.scripted()), {"RIGLM_FILTERING__ENABLED": filtering})
    async with RawClient(link, HANDSHAKE) as client:
        await client.greet()
        assert (await client.request("tools/list")).result
        for _ in range(5):
            assert (await client.call("echo")).result
        await wait_until_async(lambda: stored(database) == 5)
    assert link.exit_code == 0
    [old] = aside(database)
    assert old.read_bytes() == NO_DATABASE
    assert link.stderr.read_text("utf-8").count("is damaged; it was set aside as") == 1
    assert stage.damage() == []


async def test_calls_of_several_processes_pass_and_are_recorded_when_their_database_is_damaged(
    stage: Stage, database: Path
) -> None:
    links = [
        stage.pipe(stage.riglm("run", "--", *stage.scripted()), {"RIGLM_FILTERING__ENABLED": "false"}) for _ in range(2)
    ]
    async with RawClient(links[0], HANDSHAKE) as one, RawClient(links[1], HANDSHAKE) as other:
        for count, client in enumerate((one, other), start=1):
            await client.greet()
            await client.request("tools/list")
            assert (await client.call("echo")).result
            await wait_until_async(lambda count=count: stored(database) == count)
        overwrite(database)
        for _ in range(10):
            assert (await one.call("echo")).result
            assert (await other.call("echo")).result
        await wait_until_async(lambda: stored(database) == 20)
    assert [link.exit_code for link in links] == [0, 0]
    assert len(aside(database)) == 1
    assert stage.damage() == []


async def truncate_between_calls(one: RawClient, other: RawClient, database: Path, index: Path) -> None:
    for count in range(1, 6):
        assert (await one.call("echo")).result
        assert (await other.call("echo")).result
        await wait_until_async(lambda count=count: stored(database) == 2 * count)
        os.truncate(index, 0)


async def test_calls_of_several_processes_pass_and_are_recorded_when_the_index_of_their_journal_is_truncated(
    stage: Stage, database: Path
) -> None:
    links = [stage.pipe(stage.riglm("run", "--", *stage.scripted())) for _ in range(2)]
    index = database.with_name("riglm.db-shm")
    async with RawClient(links[0], HANDSHAKE) as one:
        await one.greet()
        await one.request("tools/list")
        # nothing writes in the background while the index is truncated: the other process finds the tools pinned
        await wait_until_async(lambda: database.exists() and stored(database, "tool_pin") > 0)
        async with RawClient(links[1], HANDSHAKE) as other:
            await other.greet()
            await other.request("tools/list")
            await truncate_between_calls(one, other, database, index)
    assert [link.exit_code for link in links] == [0, 0]
    assert stored(database) == 10
    assert aside(database) == []
    assert stage.damage() == []


async def test_calls_pass_when_the_store_is_a_file_of_something_else_and_that_stays(
    stage: Stage, database: Path
) -> None:
    database.write_bytes(NO_DATABASE)
    link = stage.pipe(stage.riglm("run", "--", *stage.scripted()))
    async with RawClient(link, HANDSHAKE) as client:
        await client.greet()
        assert (await client.request("tools/list")).result
        assert (await client.call("echo")).result
        await wait_until_async(lambda: "storage.path" in link.stderr.read_text("utf-8"))
    assert link.exit_code == 0
    assert [each.name for each in database.parent.glob("riglm.db*")] == [database.name]
    assert database.read_bytes() == NO_DATABASE


@pytest.mark.parametrize("command", ["status", "upgrade", "export", "sessions"])
def test_a_command_says_that_the_store_is_a_file_of_something_else(stage: Stage, database: Path, command: str) -> None:
    database.write_bytes(NO_DATABASE)
    done = commanded(stage, command)
    assert (done.returncode, done.stdout) == (2, "")
    assert "this file is not a database of riglm" in done.stderr
    assert "storage.path" in done.stderr
    assert [each.name for each in database.parent.glob("riglm.db*")] == [database.name]
    assert database.read_bytes() == NO_DATABASE


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_that_the_database_is_damaged_and_leaves_it(stage: Stage, database: Path, command: str) -> None:
    destroyed(database)
    done = commanded(stage, command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("riglm: the analytics store sqlite:///")
    assert "file is not a database — fix: the file is damaged" in done.stderr
    assert database.read_bytes() == NO_DATABASE
    assert aside(database) == []
