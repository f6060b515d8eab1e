"""What becomes of the SQLite file: damaged, replaced, removed, or held by others. Real files, and real processes."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from riglm.adapters.analytics import store_file, storing
from riglm.adapters.analytics.database import Database, FileConnection, FileReplacedError
from riglm.adapters.analytics.prediction_store import SqliteChoices
from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.adapters.analytics.store_file import StoreFile
from riglm.adapters.analytics.vectors import SqlVectors
from riglm.adapters.spool.sqlite_spool import SqliteSpool
from riglm.application.tracking.recorder import Recorder
from riglm.domain.errors import AnalyticsUnavailableError, NoStoreError
from riglm.domain.retention import Expiry
from riglm.domain.session import Session
from riglm.ports.analytics import SessionClosed
from tests.contracts.vector_cache_contract import a_vector
from tests.preloaded import script_command
from tests.records import a_session, an_invocation, an_override
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(120)

PAGE = 4096
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "no database": lambda _: b"a letter to somebody, and no database at all " * 500,
    "the header of something else": lambda whole: b"\x89PNG\r\n\x1a\n" + whole[8:],
    "zeros": lambda whole: bytes(len(whole)),
    "cut in half": lambda whole: whole[: len(whole) // PAGE // 2 * PAGE],
    "cut within the header": lambda whole: whole[:50],
    "pages overwritten": lambda whole: whole[:PAGE] + b"\xa5" * (len(whole) - PAGE),
}

RECORDER = """
import json, sys
from riglm.adapters.analytics.sql import SqlAnalytics
from tests.records import a_session
with SqlAnalytics(sys.argv[1], timeout=30, is_quarantining=True) as store:
    print("open", flush=True)
    for line in sys.stdin:
        sessions = [a_session() for _ in range(int(line))]
        for session in sessions:
            store.record_many([session])
        print(json.dumps([str(session.id) for session in sessions]), flush=True)
"""

KILLED_BETWEEN_TWO_MOVES = """
import os, signal, sys
from riglm.adapters.analytics import store_file
from riglm.adapters.analytics.sql import SqlAnalytics
store_file._move_beside = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with SqlAnalytics(sys.argv[1], is_quarantining=True):
    pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store" / "usage.db"


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as started:
        yield started


def url(file: Path) -> str:
    return f"sqlite:///{file}"


def filled(file: Path, sessions: int = 40) -> bytes:
    """A store with something in it and nobody at it, and its bytes."""
    with SqlAnalytics(url(file)) as store:
        for _ in range(sessions):
            session = a_session()
            store.record_many([session, *(an_invocation(session, "read") for _ in range(10))])
    assert not beside(file)
    return file.read_bytes()


def beside(file: Path) -> list[str]:
    """What lies beside the file and belongs to it."""
    return sorted(each.name for each in file.parent.iterdir() if each.name.endswith(("-wal", "-shm", "-journal")))


def aside(file: Path, why: str = "corrupt") -> list[Path]:
    """The files that were set aside, without what belongs to them."""
    found = file.parent.glob(f"{file.name}.{why}-*")
    return sorted(each for each in found if not each.name.endswith(("-wal", "-shm", "-journal")))


def copy(source: Path, target: Path) -> Path:
    """Copy the bytes in another process: to close a database's file in this one would drop SQLite's locks on it."""
    subprocess.run(["cp", "--no-preserve=all", source, target], check=True, timeout=60)
    return target


def spoil(file: Path, how: str) -> bytes:
    """Damage the file where it is, and give what it holds then."""
    draft = copy(file, file.with_name("draft"))
    spoiled = DAMAGE[how](draft.read_bytes())
    draft.write_bytes(spoiled)
    copy(draft, file)
    draft.unlink()
    return spoiled


def written_back(file: Path) -> None:
    """Have all pages in the file itself, and no connection that thinks it knows them."""
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None); "
        "c.execute('UPDATE session SET ended_at = 1'); "
        "assert c.execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchone()[0] == 0"
    )
    subprocess.run([sys.executable, "-c", script, file], check=True, timeout=60)


def ids(file: Path) -> set[str]:
    with SqlAnalytics(url(file)) as store:
        return {str(summary.session.id) for summary in store.list_sessions(limit=10_000)}


class Recording:
    """A process that records when it is told to."""

    def __init__(self, file: Path, processes: ExitStack) -> None:
        self._process = processes.enter_context(
            subprocess.Popen(
                script_command(RECORDER, url(file)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        processes.callback(self._process.kill)

    def heard(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def notify(self, count: int) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def end(self) -> str:
        """What it complained about."""
        _, errors = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, errors
        return errors


SPOIL_INDEXES = """
import sqlite3, sys
def changed(*statements):
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA writable_schema = 1")
    found = [connection.execute(*statement).fetchall() for statement in statements]
    connection.close()
    return found[0]
indexes = "FROM sqlite_master WHERE type = 'index' AND tbl_name = 'session' AND sql IS NOT NULL"
known = changed(["SELECT type, name, tbl_name, rootpage, sql " + indexes], ["DELETE " + indexes])
changed(["UPDATE session SET started_at = started_at + 1, ended_at = 5, principal = 'another'"])
back = "INSERT INTO sqlite_master (type, name, tbl_name, rootpage, sql) VALUES (?, ?, ?, ?, ?)"
changed(*([back, each] for each in known))
"""
"""Changes rows behind the back of their indexes."""


def faults(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as connection:
        return [word for (word,) in connection.execute("PRAGMA integrity_check")]


def with_bad_indexes(file: Path, sessions: list[Session]) -> None:
    with SqlAnalytics(url(file)) as store:
        store.record_many(sessions)
    subprocess.run([sys.executable, "-c", SPOIL_INDEXES, file], check=True, timeout=60)
    assert faults(file) != ["ok"]


def test_indexes_that_are_damaged_are_made_anew_and_nothing_is_lost(file, caplog):
    sessions = [a_session() for _ in range(5)]
    with_bad_indexes(file, sessions)
    with SqlAnalytics(url(file), is_quarantining=True) as store:
        store.record_many([SessionClosed(session_id=sessions[0].id, ended_at=2.0**31)])
        stored = {summary.session.id: summary.session.ended_at for summary in store.list_sessions()}
    assert stored == {session.id: 5.0 for session in sessions} | {sessions[0].id: 2.0**31}
    assert faults(file) == ["ok"]
    assert aside(file) == []
    assert f"indexes of the database {file} were damaged; they were rebuilt" in caplog.text


def test_a_record_that_met_indexes_which_another_process_mended_meanwhile_is_stored(file):
    sessions = [a_session() for _ in range(5)]
    with_bad_indexes(file, sessions)
    with SqlAnalytics(url(file), is_quarantining=True) as store:
        run_once = FileConnection.run_once

        def mended_first(connected: FileConnection, error: Exception) -> None:
            StoreFile(file).mend()
            run_once(connected, error)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FileConnection, "run_once", mended_first)
            store.record_many([SessionClosed(session_id=sessions[0].id, ended_at=2.0**31)])
        assert 2.0**31 in {summary.session.ended_at for summary in store.list_sessions()}


def test_a_file_whose_indexes_cannot_be_made_anew_is_set_aside(file, monkeypatch):
    sessions = [a_session() for _ in range(5)]
    with_bad_indexes(file, sessions)
    monkeypatch.setattr(store_file, "make_indexes_anew", lambda _: False)
    with SqlAnalytics(url(file), is_quarantining=True) as store:
        store.record_many([SessionClosed(session_id=sessions[0].id, ended_at=2.0**31)])
        assert list(store.list_sessions()) == []
    assert len(aside(file)) == 1


def test_a_record_that_fails_alone_in_a_sound_file_does_not_hold_up_the_others(file, tmp_path, monkeypatch, caplog):
    filled(file, sessions=1)
    session = a_session()
    calls = [an_invocation(session, "read") for _ in range(40)]
    store_them = storing.store

    def store(connection, records, names):
        store_them(connection, records, names)
        if calls[7] in records:
            error = sqlite3.DatabaseError("database disk image is malformed")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error

    monkeypatch.setattr(storing, "store", store)
    monkeypatch.setattr(storing, "_append_calls", lambda *_: False)
    with SqliteSpool(tmp_path / "spool") as left:
        left.append([session, *calls[:20]])
    with Recorder(
        lambda: SqlAnalytics(url(file), is_quarantining=True),
        open_spool=lambda: SqliteSpool(tmp_path / "spool"),
        head_start=0.0,
    ) as recorder:
        for call in calls[20:]:
            recorder.put(call)
        wait_until(lambda: recorder.counts().stored == 40)
        wait_until(lambda: recorder.counts().reasons["refused"] == 1)
    with SqlAnalytics(url(file)) as after:
        assert list(after.list_invocations(session.id)) == [call for call in calls if call is not calls[7]]
    assert "the store refuses a record; it is dropped" in caplog.text
    assert "a check of the whole file finds no damage" in caplog.text
    assert aside(file) == []


FOREIGN = {
    "a text": b"storage: {path: riglm.yaml}\n" * 100,
    "a short text": b"servers: {}\n",
    "an encrypted database": bytes(range(255, -1, -1)) * 64,
    "zeros": bytes(8192),
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("is_quarantining", [True, False])
def test_a_file_that_never_was_a_database_of_riglm_stays_as_it_is(file, what, is_quarantining):
    file.parent.mkdir()
    file.write_bytes(FOREIGN[what])
    for _ in range(2):
        with (
            pytest.raises(NoStoreError, match=r"usage\.db.*is not a database of riglm.*storage\.path"),
            SqlAnalytics(url(file), is_quarantining=is_quarantining),
        ):
            pass
    assert {each.name: each.read_bytes() for each in file.parent.iterdir()} == {"usage.db": FOREIGN[what]}


def test_a_copied_database_is_known_as_riglms_once_it_was_open(file):
    filled(file)
    file.with_name("usage.db-guard").unlink()
    with SqlAnalytics(url(file)):
        pass
    spoil(file, "zeros")
    with SqlAnalytics(url(file), is_quarantining=True):
        pass
    assert len(aside(file)) == 1


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_set_aside_as_it_is_and_a_new_one_begun(file, caplog, how):
    filled(file)
    spoiled = spoil(file, how)
    session = a_session()
    with SqlAnalytics(url(file), is_quarantining=True) as store:
        store.record_many([session])
        assert [summary.session.id for summary in store.list_sessions()] == [session.id]
    [old] = aside(file)
    assert old.read_bytes() == spoiled
    assert caplog.text.count("WARNING") == 1
    assert f"{file} is damaged; it was set aside as {old}" in caplog.text
    assert f"to save what can be read: sqlite3 '{old}' .recover" in caplog.text
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", DAMAGE)
def test_whoever_only_reads_sets_nothing_aside(file, how):
    filled(file)
    spoiled = spoil(file, how)
    with pytest.raises(AnalyticsUnavailableError, match=r"usage\.db.*(not a database|malformed).*fix: "):
        ids(file)
    assert aside(file) == []
    assert file.read_bytes() == spoiled


@pytest.mark.parametrize("how", ["no database", "zeros", "pages overwritten"])
def test_a_store_that_meets_damage_while_it_is_open_stores_what_it_was_given(file, caplog, how):
    filled(file)
    with SqlAnalytics(url(file), is_quarantining=True) as store:
        store.record_many([a_session()])
        written_back(file)
        spoil(file, how)
        session = a_session()
        store.record_many([session, an_invocation(session, "read")])
        assert [summary.invocations for summary in store.list_sessions()] == [1]
    assert len(aside(file)) == 1
    assert caplog.text.count("is damaged; it was set aside as") == 1
    assert ids(file) == {str(session.id)}


def test_what_was_acknowledged_stays_with_the_damaged_file_and_its_journal(file):
    filled(file)
    with SqlAnalytics(url(file)) as other, SqlAnalytics(url(file), is_quarantining=True) as store:
        written_back(file)
        other.record_many([late := a_session()])  # in the journal alone
        whole = copy(file, file.with_name("whole"))
        spoil(file, "cut within the header")
        assert StoreFile(file).mend()
        store.record_many([a_session()])
    [old] = aside(file)
    journal = old.with_name(f"{old.name}-wal")
    whole.rename(file.with_name("saved.db"))
    journal.rename(file.with_name("saved.db-wal"))
    assert str(late.id) in ids(file.with_name("saved.db"))
    assert str(late.id) not in ids(file)


def test_processes_that_start_on_a_damaged_file_set_it_aside_once_and_lose_nothing(file, processes):
    filled(file)
    spoil(file, "no database")
    recording = [Recording(file, processes) for _ in range(4)]
    assert [each.heard() for each in recording] == ["open"] * 4
    for each in recording:
        each.notify(25)
    stored = {id_ for each in recording for id_ in json.loads(each.heard())}
    assert "".join(each.end() for each in recording).count("it was set aside as") == 1
    assert len(aside(file)) == 1
    assert len(stored) == 100
    assert ids(file) == stored


def test_what_is_acknowledged_while_the_file_is_set_aside_is_in_one_file_or_the_other(file, processes, monkeypatch):
    filled(file)
    monkeypatch.setattr(store_file, "is_damaged", lambda _: True)  # a sound one, that takes records to the last moment
    recording = [Recording(file, processes) for _ in range(2)]
    assert [each.heard() for each in recording] == ["open"] * 2
    stored: set[str] = set()
    for _ in range(4):
        for each in recording:
            each.notify(50)
        assert StoreFile(file).mend()
        stored.update(id_ for each in recording for id_ in json.loads(each.heard()))
    for each in recording:
        each.end()
    assert len(stored) == 400
    assert len(aside(file)) == 4
    assert stored <= set().union(*map(ids, [file, *aside(file)]))


def test_a_file_that_sqlite_finds_sound_stays(file):
    whole = filled(file)
    assert not StoreFile(file).mend()
    assert file.read_bytes() == whole
    assert aside(file) == []


def test_a_file_that_another_process_set_aside_already_is_not_looked_for_again(file):
    filled(file)
    mine, other = StoreFile(file), StoreFile(file)
    spoil(file, "zeros")
    assert other.mend()
    assert mine.mend()
    assert len(aside(file)) == 1
    assert not mine.is_in_place


def test_a_process_killed_between_two_moves_leaves_a_place_that_the_next_one_puts_in_order(file):
    filled(file)
    spoiled = spoil(file, "no database")
    file.with_name("usage.db-wal").write_bytes(b"a journal")
    killed = subprocess.run([sys.executable, "-c", KILLED_BETWEEN_TWO_MOVES, url(file)], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not file.exists()
    with SqlAnalytics(url(file), is_quarantining=True) as store:
        store.record_many([a_session()])
    assert len(ids(file)) == 1
    assert [old.read_bytes() for old in aside(file)] == [spoiled]
    assert [each.read_bytes() for each in file.parent.glob("usage.db.replaced-*-wal")] == [b"a journal"]


def test_nothing_is_moved_while_another_process_has_the_guard(file, monkeypatch):
    filled(file)
    spoil(file, "zeros")
    monkeypatch.setattr(store_file, "_GUARD_SECONDS", 0.01)
    with (
        store_file.locked(file.with_name("usage.db-guard"), timeout=0) as held,
        pytest.raises(AnalyticsUnavailableError, match=r"not a database.*not set aside.*another process"),
        SqlAnalytics(url(file), is_quarantining=True),
    ):
        pass
    assert held
    assert aside(file) == []


def test_a_locked_file_is_not_set_aside(file):
    filled(file)
    with SqlAnalytics(url(file), timeout=0.01, is_quarantining=True) as store:
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(AnalyticsUnavailableError, match="locked"):
                store.record_many([a_session()])
        store.record_many([a_session()])
    assert aside(file) == []


def test_a_full_disk_sets_nothing_aside(file):
    filled(file)
    with SqlAnalytics(url(file), is_quarantining=True) as store:
        with store._database.reading() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
        with pytest.raises(AnalyticsUnavailableError, match="full"):
            store.record_many([a_session() for _ in range(1000)])
    assert aside(file) == []


def test_a_file_that_may_not_be_written_is_not_set_aside(file):
    filled(file)
    with SqlAnalytics(url(file), is_quarantining=True) as store:
        with store._database.reading() as connection:
            connection.exec_driver_sql("PRAGMA query_only = ON")
        with pytest.raises(AnalyticsUnavailableError, match="readonly"):
            store.record_many([a_session()])
    assert aside(file) == []


def test_a_directory_in_the_place_of_the_file_is_not_set_aside(file):
    file.mkdir(parents=True)
    with (
        pytest.raises(AnalyticsUnavailableError, match="unable to open"),
        SqlAnalytics(url(file), is_quarantining=True),
    ):
        pass
    assert file.is_dir()


def test_a_disk_that_damages_one_file_after_the_other_is_not_filled(file):
    whole = filled(file)
    for _ in range(10):
        spoil(file, "zeros")
        with SqlAnalytics(url(file), is_quarantining=True):
            pass
    spoil(file, "zeros")
    with (
        pytest.raises(AnalyticsUnavailableError, match=r"10 damaged files were set aside already.*fix: "),
        SqlAnalytics(url(file), is_quarantining=True),
    ):
        pass
    assert len(aside(file)) == 10
    assert set(file.read_bytes()) == {0}
    assert len(whole) > PAGE


def test_a_journal_whose_file_is_gone_is_kept_and_not_applied(file, caplog):
    filled(file)
    with SqlAnalytics(url(file)) as store:
        store.record_many([a_session()])
        journal = file.with_name("usage.db-wal").read_bytes()
    assert journal
    for left in (None, b""):
        file.unlink()
        if left is not None:
            file.write_bytes(left)
        file.with_name("usage.db-wal").write_bytes(journal)
        with SqlAnalytics(url(file)) as store:
            store.record_many([a_session()])
            assert len(store.list_sessions()) == 1
    kept = sorted(file.parent.glob("usage.db.replaced-*-wal"))
    assert [each.read_bytes() for each in kept] == [journal] * 2
    assert caplog.text.count("does not belong to it") == 2


def test_a_backup_that_is_put_in_place_of_an_open_file_does_not_get_the_journal_of_that(file, tmp_path):
    filled(file, sessions=3)
    backup = copy(file, tmp_path / "backup.db")
    old, new = a_session(), a_session()
    with SqlAnalytics(url(file)) as first, SqlAnalytics(url(file)) as second:
        first.record_many([old, *(an_invocation(old, "read") for _ in range(300))])
        assert len(second.list_sessions()) == 4
        backup.replace(file)
        first.record_many([new])
        assert len(first.list_sessions()) == len(second.list_sessions()) == 4
        second.record_many([a_session()])
    assert str(old.id) not in ids(file)
    assert len(ids(file)) == 5
    assert len(list(file.parent.glob("usage.db.replaced-*-wal"))) == 1


def test_the_end_of_a_store_keeps_its_journal_from_a_backup_too(file, tmp_path):
    filled(file, sessions=3)
    backup = copy(file, tmp_path / "backup.db")
    with SqlAnalytics(url(file)) as store:
        store.record_many([a_session()])
        backup.replace(file)
    assert "usage.db-wal" not in beside(file)
    assert len(ids(file)) == 3


def test_a_transaction_that_went_into_a_replaced_file_is_told(file):
    database = Database(url(file))
    database.open()
    with pytest.raises(FileReplacedError), database.writing():
        file.rename(file.with_name("elsewhere.db"))
    with database.writing() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM session").scalar_one() == 0
    database.close()


def test_all_who_hold_a_store_for_long_follow_a_file_that_is_replaced(file, tmp_path):
    filled(file)
    filled(tmp_path / "other" / "usage.db", sessions=2)
    vectors, choices = SqlVectors(url(file)), SqliteChoices(file)
    vectors.put_many("minilm", {"a": a_vector(1)})
    choices.put_override(an_override())
    with SqlAnalytics(url(file)) as keeper, keeper.maintenance_lease() as mine:
        assert mine
        (tmp_path / "other" / "usage.db").replace(file)
        assert vectors.get_many("minilm", ["a"]) == {}
        vectors.put_many("minilm", {"b": a_vector(1)})
        assert choices.list_overrides() == []
        assert keeper.refresh_cooccurrences(1.0) >= 0
        assert len(keeper.list_sessions()) == 2
        removed = list(keeper.purge(Expiry.of_all(2**40, 2**40)))
        assert sum(step.invocations for step in removed) == 20
        choices.put_override(an_override())
        assert len(keeper.list_overrides()) == 1
    vectors.close()
