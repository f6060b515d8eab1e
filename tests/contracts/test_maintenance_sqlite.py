"""What looking after a SQLite file does to the file."""

import sqlite3
import time
from contextlib import closing

import pytest

from riglm.adapters.analytics.sql import SqlAnalytics
from riglm.domain.retention import DAY_SECONDS, Expiry
from tests.contracts.maintenance_contract import a_used_session
from tests.records import a_session, an_exposure


@pytest.fixture
def file(tmp_path):
    return tmp_path / "usage.db"


@pytest.fixture
def store(file):
    with SqlAnalytics(f"sqlite:///{file}") as opened:
        yield opened


def purge_all(store):
    now = time.time()
    for _ in store.purge(Expiry.of_all(now, now)):
        pass


def fill(store, sessions=300):
    for _ in range(sessions // 50):
        store.record_many([record for _ in range(50) for record in a_used_session(1000.0, ended=2000.0)[1]])


def asked(file, question):
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute(question).fetchone()[0]
        connection.commit()
        return found


def test_a_file_grows_no_further_when_what_is_too_old_makes_room(store):
    fill(store)
    purge_all(store)
    size = store.size_bytes()
    for _ in range(3):
        fill(store)
        purge_all(store)
    assert store.size_bytes() <= size * 1.1


def test_space_is_given_back_in_steps_but_for_a_reserve(store, file):
    fill(store)
    purge_all(store)
    size = store.size_bytes()
    list(store.compact(reserve=0.2))
    left = store.size_bytes()
    assert left < size
    assert 0.1 < asked(file, "PRAGMA freelist_count") / asked(file, "PRAGMA page_count") <= 0.2
    list(store.compact())
    assert store.size_bytes() < left
    assert asked(file, "PRAGMA freelist_count") == 0


def test_a_file_of_an_older_riglm_gives_space_back_once_it_was_written_anew(file):
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE old (x)")
        connection.execute("DROP TABLE old")
    with SqlAnalytics(f"sqlite:///{file}") as store:
        fill(store)
        purge_all(store)
        size = store.size_bytes()
        list(store.compact())
        assert store.size_bytes() == size
        list(store.compact(whole=True))
        assert store.size_bytes() < size
    assert asked(file, "PRAGMA auto_vacuum") == 2
    assert asked(file, "PRAGMA integrity_check") == "ok"


def test_lists_of_tools_that_nothing_refers_to_any_more_are_removed(store, file):
    now = time.time()
    old, young = a_session(started_at=now - 40 * DAY_SECONDS), a_session(started_at=now, tools_available=("kept",))
    old.ended_at, old.tools_available = old.started_at, ("gone",)
    still_open = a_session(started_at=old.started_at, tools_available=("open",))
    store.record_many([old, young, still_open, an_exposure(old, "shown", hidden=("hidden",)), an_exposure(young, "a")])
    asked(file, f"UPDATE toolset SET used_at = {old.started_at} WHERE names <> '[\"kept\"]' RETURNING 1")
    store.record_many([an_exposure(young, "a", timestamp=now)])
    removed = sum(step.lists for step in store.purge(Expiry.of_all(now - 30 * DAY_SECONDS, now)))
    assert removed == 3
    assert {each.session.tools_available for each in store.list_sessions()} == {("kept",), ("open",)}
    assert [each.shown for each in store.list_exposures(young.id)] == [("a",), ("a",)]


def test_a_list_that_was_used_lately_stays_although_nothing_refers_to_it(store):
    session = a_session(tools_available=("read",), ended_at=1001.0)
    store.record_many([session])
    now = time.time()
    assert sum(step.lists for step in store.purge(Expiry.of_all(now, now))) == 0
    store.record_many([a_session(tools_available=("read",))])
    assert store.list_sessions()[0].session.tools_available == ("read",)
