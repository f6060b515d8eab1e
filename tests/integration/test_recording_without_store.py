"""Calls go through where nothing can be recorded, and riglm ends in good time."""

import sqlite3
from contextlib import closing

import pytest

from tests.interaction.clients.raw import HANDSHAKE, RawClient
from tests.interaction.stage import Stage
from tests.waiting import wait_until_async

pytestmark = pytest.mark.timeout(60)


async def test_a_data_directory_that_is_none_costs_the_records_and_no_call(stage: Stage) -> None:
    in_the_way = stage.folder / "data"
    in_the_way.write_text("a file", "utf-8")
    link = stage.pipe(stage.riglm("run", "--", *stage.scripted()))
    async with RawClient(link, HANDSHAKE) as client:
        await client.greet()
        await client.request("tools/list")
        assert (await client.call("echo")).result
    said = link.stderr.read_text("utf-8")
    assert link.exit_code == 0, said
    assert said.count("the hashing key") == 1
    assert str(in_the_way / "riglm.key") in said
    assert "RIGLM_DATA_DIR" in said
    assert "Traceback" not in said
    assert "records could not be stored before the end and are lost" in said


async def test_a_call_is_on_disk_while_the_session_goes_on(stage: Stage) -> None:
    link = stage.pipe(stage.riglm("run", "--", *stage.scripted()))
    async with RawClient(link, HANDSHAKE) as client:
        await client.greet()
        await client.request("tools/list")
        await client.call("echo")
        await wait_until_async(lambda: _stored(stage))


def _stored(stage: Stage) -> list[object]:
    file = stage.folder / "data" / "riglm.db"
    if not file.exists():
        return []
    with closing(sqlite3.connect(file)) as database:
        try:
            return database.execute("SELECT tool FROM invocation").fetchall()
        except sqlite3.OperationalError:  # the tables are still being made
            return []
