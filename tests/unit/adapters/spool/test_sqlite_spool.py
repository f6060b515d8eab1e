"""The spool: records in order, checked, bounded, held by one process at a time."""

import itertools
import os
import random
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from riglm.adapters.spool import file_lock
from riglm.adapters.spool.file_lock import FileLock, LockHeldError, sole_server
from riglm.adapters.spool.sqlite_spool import VERSION, SqliteSpool, spooled_pins, survey
from riglm.ports.spool import SpoolUnavailableError
from tests.records import a_session, a_tool_pin, an_invocation

SESSION = a_session()


def calls(count):
    return [an_invocation(SESSION, "read") for _ in range(count)]


def drain(spool):
    """Return all records of a spool, which are removed as they are read."""
    found = []
    while (batch := spool.read(7)) is not None:
        found += batch.records
        spool.remove()
    return found


def takes(spool):
    try:
        spool.append(calls(1))
    except SpoolUnavailableError as error:
        assert "full" in str(error)  # noqa: PT017  # it may also not be raised
        return False
    return True


def files(root):
    return sorted(root.glob("*.db"))


def change(path, statement):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "spool"


@pytest.fixture
def left(root):
    """Five records of an ended process, and their file."""
    records = calls(5)
    with SqliteSpool(root) as spool:
        spool.append(records)
    return records, files(root)[0]


def test_records_are_read_in_order(root):
    records = calls(300)
    with SqliteSpool(root) as spool:
        for at in range(0, 300, 9):
            assert spool.append(records[at : at + 9]) == 0
        assert drain(spool) == records


def test_files_exist_only_while_there_are_records(root):
    with SqliteSpool(root) as spool:
        assert spool.is_empty
        assert spool.read(1) is None
        assert not root.exists()
        records = calls(3)
        spool.append(records)
        assert not spool.is_empty
        assert drain(spool) == records
        assert list(root.iterdir()) == []
        assert spool.size_bytes == 0


def test_only_the_owner_may_read_the_files(tmp_path):
    before = os.umask(0)
    try:
        spool = SqliteSpool(tmp_path / "spool" / "store")
        spool.append(calls(1))
    finally:
        os.umask(before)
    with spool:
        for path in (tmp_path / "spool", *(tmp_path / "spool").rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_adopted_records_that_were_not_removed_are_left_to_the_next_process(root, left):
    records, _ = left
    with SqliteSpool(root) as spool:
        assert spool.read(2).records == records[:2]
        spool.remove()
        assert spool.read(2).records == records[2:4]
    with SqliteSpool(root) as spool:
        assert drain(spool) == records[2:]


def test_the_spool_of_a_running_process_is_not_adopted(root):
    records = calls(2)
    with SqliteSpool(root) as one:
        one.append(records)
        with SqliteSpool(root) as other:
            assert other.is_empty
            assert [(each.is_held, each.records) for each in survey(root)] == [(True, 2)]
        assert drain(one) == records


def test_adopted_records_come_first(root, left):
    with SqliteSpool(root) as spool:
        own = calls(1)
        spool.append(own)
        assert drain(spool) == left[0] + own


def test_a_full_spool_takes_records_again_once_there_is_room(root):
    with SqliteSpool(root, max_bytes=100_000) as spool:
        kept = list(itertools.takewhile(lambda _: takes(spool), range(1000)))
        assert 0 < spool.size_bytes <= 100_000
        assert 0 < len(drain(spool)) == len(kept) < 1000
        assert takes(spool)


@pytest.mark.parametrize("held", [0, 200])
def test_a_spool_on_the_disk_of_the_store_leaves_it_space_for_all_that_it_holds_until_the_end(root, tmp_path, held):
    free = [1 << 30]
    with SqliteSpool(root, store=tmp_path / "riglm.db", free_bytes=lambda _: free[0]) as spool:
        spool.append(calls(held))
        free[0] = 2 * spool.size_bytes + (256 << 10)
        with pytest.raises(SpoolUnavailableError, match="leaves the last"):
            spool.append(calls(1))
        free[0] += 100_000
        spool.append(calls(1))
        free[0] = 0
        spool.hurry()
        spool.append(calls(1))
        assert len(drain(spool)) == held + 2


def test_adopted_records_count_for_the_maximum_size(root, left):
    with SqliteSpool(root, max_bytes=left[1].stat().st_size + 8000) as spool, pytest.raises(SpoolUnavailableError):
        spool.append(calls(1))


def test_an_altered_record_is_counted_as_damaged_and_the_others_are_read(root, left):
    change(left[1], "UPDATE record SET body = replace(body, 'read', 'rode') WHERE id IN (2, 4)")
    with SqliteSpool(root) as spool:
        found = spool.read(100)
        assert (found.records, found.damaged) == (left[0][::2], 2)
        spool.remove()
        assert spool.is_empty


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_file_yields_only_records_that_were_written(root, left, seed):
    records, path = left
    data = bytearray(path.read_bytes())
    chance = random.Random(seed)
    for _ in range(50):
        data[chance.randrange(len(data))] ^= 1 << (seed % 8)
    path.write_bytes(data)
    with SqliteSpool(root) as spool:
        assert set(drain(spool)) <= set(records)
        assert spool.is_empty


def test_a_file_that_is_no_database_is_renamed(root, left, caplog):
    left[1].write_bytes(b"no database" * 1000)
    with SqliteSpool(root) as spool:
        assert spool.is_empty
    assert "is damaged; it was renamed" in caplog.text
    assert [path.suffix for path in root.iterdir()] == [".corrupt"]


def test_a_file_of_a_newer_riglm_is_left_alone(root, left, caplog):
    change(left[1], f"PRAGMA user_version = {VERSION + 1}")
    for _ in range(2):
        with SqliteSpool(root) as spool:
            assert spool.is_empty
            assert spool.size_bytes == 0
    assert "which a newer riglm wrote: upgrade riglm" in caplog.text
    assert [(each.is_newer, each.records) for each in survey(root)] == [(True, 0)]


def test_own_records_that_disappeared_are_counted_as_damaged(root):
    with SqliteSpool(root) as spool:
        spool.append(calls(5))
        change(files(root)[0], "DELETE FROM record WHERE id > 1")
        found = spool.read(100)
        assert (len(found.records), found.damaged) == (1, 4)
        spool.remove()
        assert spool.read(100) is None


@pytest.mark.parametrize("durable", [False, True])
def test_a_disk_that_is_full_loses_no_record_that_was_appended(root, durable):
    first, second, third = calls(3), calls(300), calls(3)
    with SqliteSpool(root, durable=durable) as spool:
        spool.append(first)
        spool._own._connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(SpoolUnavailableError, match="full"):
            spool.append(second)
        spool.append(third)
        assert len(files(root)) == 2
        assert drain(spool) == first + third


def test_a_directory_that_cannot_be_made_makes_the_spool_unavailable(tmp_path):
    (tmp_path / "spool").write_text("in the way")
    with SqliteSpool(tmp_path / "spool") as spool:
        with pytest.raises(SpoolUnavailableError, match="cannot be written"):
            spool.append(calls(1))
        assert spool.is_empty


def test_a_lock_without_a_file_is_removed(root):
    root.mkdir()
    (root / "1-gone.lock").touch()
    with SqliteSpool(root):
        pass
    assert list(root.iterdir()) == []


def test_a_pipe_among_the_files_does_not_block(root, left):
    os.mkfifo(root / "0000.db")
    with SqliteSpool(root) as spool:
        assert drain(spool) == left[0]


def test_a_full_disk_leaks_no_descriptor_and_leaves_no_lock(root, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with SqliteSpool(root) as spool:
        before = len(list(Path("/proc/self/fd").iterdir()))
        with monkeypatch.context() as patch:
            patch.setattr(file_lock.os, "write", full)
            with pytest.raises(SpoolUnavailableError, match="No space left"):
                spool.append(calls(1))
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        assert [path.name for path in root.iterdir() if path.suffix != ".lock"] == []


def test_a_claim_that_is_removed_while_another_process_waits_is_created_again(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    first = FileLock(path, "the first")
    removed = []

    def locks(descriptor, lock=file_lock.lock):
        if not removed:
            removed.append(1)
            first.remove()  # between opening the file and locking it
        lock(descriptor)

    monkeypatch.setattr(file_lock, "lock", locks)
    second = FileLock(path, "the second")
    assert path.read_text() == "the second"
    with pytest.raises(LockHeldError):
        FileLock(path)
    second.remove()


def test_a_data_directory_that_cannot_be_used_does_not_prevent_serving(tmp_path):
    (tmp_path / "data").write_text("in the way")
    with sole_server(tmp_path / "data", ""):
        pass


@pytest.mark.parametrize("is_begun", [True, False])
def test_hurry_ends_the_sync_of_every_append(tmp_path, is_begun):
    with SqliteSpool(tmp_path, durable=True) as spool:
        if is_begun:
            spool.append([a_session()])
            assert synchronous(spool) == "FULL"
        spool.hurry()
        spool.append([a_session()])
        assert synchronous(spool) == "NORMAL"


def synchronous(spool):
    return ("OFF", "NORMAL", "FULL")[spool._own._connection.execute("PRAGMA synchronous").fetchone()[0]]


def test_pins_of_running_and_ended_processes_are_read_and_stay(root):
    pins = [a_tool_pin(name=name) for name in ("read", "\ud83d\0", "write")]
    with SqliteSpool(root) as ended:
        ended.append([SESSION, pins[0], *calls(3), pins[1]])
    (root / "unreadable.db").write_bytes(b"x" * 9000)
    with SqliteSpool(root) as running:
        running.append([pins[2]])
        assert spooled_pins("sqlite", root) == pins
        assert [len(running.read(9).records) for _ in range(2)] == [6, 6]


def test_damaged_pins_and_spools_of_a_newer_version_are_left_out(root):
    assert spooled_pins("sqlite", root) == []
    with SqliteSpool(root) as spool:
        spool.append([a_tool_pin(name="read"), a_tool_pin(name="write")])
    change(*files(root), "UPDATE record SET checksum = 0 WHERE id = 1")
    assert [pin.name for pin in spooled_pins("sqlite", root)] == ["write"]
    change(*files(root), f"PRAGMA user_version = {VERSION + 1}")
    assert spooled_pins("sqlite", root) == []
