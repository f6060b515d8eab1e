"""The recorder with a spool: nothing is lost while the store is away or hangs, and order is kept."""

import logging
import threading

import pytest

from riglm.adapters.spool.sqlite_spool import SqliteSpool
from riglm.application.tracking import recorder as recording
from riglm.application.tracking.recorder import QueueLimits
from riglm.ports.spool import SpoolUnavailableError
from tests.records import a_session, an_invocation
from tests.unit.application.tracking.shop import SOON, Eager, Shop, obeys_the_law
from tests.waiting import wait_until

IMPATIENT = 0.05


class Shelf(SqliteSpool):
    """A spool that can fail."""

    fails = False

    def append(self, records):
        if self.fails:
            raise SpoolUnavailableError("the shelf is broken")
        return super().append(records)


@pytest.fixture
def shop():
    return Shop()


@pytest.fixture
def root(tmp_path):
    return tmp_path / "spool"


def calls_of(session, count):
    return [an_invocation(session, "read") for _ in range(count)]


def put(recorder, records):
    for each in records:
        recorder.put(each)


def spooling(shop, root, **options):
    shelf = options.pop("shelf", None) or Shelf(root)
    return Eager(lambda: shop, open_spool=lambda: shelf, **{"timeout_seconds": IMPATIENT, **options})


def test_what_comes_while_the_store_is_away_is_on_disk_and_stored_when_it_is_back(shop, root, caplog):
    shop.away = True
    session = a_session()
    calls = calls_of(session, 1200)
    with caplog.at_level(logging.INFO), spooling(shop, root) as recorder:
        put(recorder, calls)
        assert recorder.flush(SOON)
        counts = recorder.counts()
        assert (counts.queued, counts.spooled, counts.dropped) == (0, 1200, 0)
        assert counts.spool_bytes > 1200 * 100
        shop.away = False
        wait_until(lambda: recorder.counts().stored == 1200)
        wait_until(lambda: recorder.counts().spool_bytes == 0)
        assert obeys_the_law(recorder)
    assert list(shop.list_invocations(session.id)) == calls
    assert [call for batch in shop.batches for call in batch] == calls
    assert list(root.iterdir()) == []
    assert "the store is back after" in caplog.text


def test_what_comes_while_the_store_hangs_is_on_disk_and_so_is_what_hangs_with_it(shop, root):
    session = a_session()
    calls = calls_of(session, 60)
    with spooling(shop, root) as recorder:
        shop.gate.clear()
        put(recorder, calls[:20])
        assert shop.tried.wait(SOON)
        put(recorder, calls[20:])
        assert recorder.flush(SOON)
        counts = recorder.counts()
        assert (counts.stored, counts.queued, counts.spooled) == (0, 0, 60)
        assert shop.tries == 1
        shop.gate.set()
        wait_until(lambda: recorder.counts().stored == 60)
        assert recorder.counts().accepted == 60
    assert list(shop.list_invocations(session.id)) == calls


def test_a_queue_that_fills_up_is_relieved_before_it_is_full(shop, root):
    shop.gate.clear()
    limits = QueueLimits(records=100, batch_records=10)
    with spooling(shop, root, limits=limits, timeout_seconds=3600.0) as recorder:
        recorder.put(a_session())
        assert shop.tried.wait(SOON)
        for _ in range(10):
            put(recorder, [a_session() for _ in range(90)])
            wait_until(lambda: recorder.counts().queued == 0)
        assert (recorder.counts().spooled, recorder.counts().dropped) == (901, 0)
        shop.gate.set()
        wait_until(lambda: recorder.counts().stored == 901)


def test_while_the_spool_fails_too_records_wait_in_memory_and_what_does_not_fit_is_counted(shop, root, caplog):
    shelf = Shelf(root)
    shelf.fails = shop.away = True
    session = a_session()
    calls = calls_of(session, 15)
    with spooling(shop, root, shelf=shelf, limits=QueueLimits(records=10)) as recorder:
        put(recorder, calls)
        counts = recorder.counts()
        assert (counts.queued, counts.spooled, counts.reasons["full"]) == (10, 0, 5)
        wait_until(lambda: "the shelf is broken" in caplog.text)
        shop.away = False
        assert recorder.flush(SOON)
        wait_until(lambda: recorder.counts().stored == 10)
    assert list(shop.list_invocations(session.id)) == calls[:10]


def test_a_full_spool_loses_nothing_that_the_queue_can_hold(shop, root):
    shop.away = True
    with spooling(shop, root, shelf=Shelf(root, max_bytes=2000)) as recorder:
        put(recorder, [a_session() for _ in range(100)])
        wait_until(lambda: shop.tries > 2)
        shop.away = False
        wait_until(lambda: recorder.counts().stored == 100)


@pytest.mark.parametrize("seconds", [SOON, 0.0])
def test_a_short_run_stores_at_its_end_what_ended_processes_left(shop, root, monkeypatch, seconds):
    monkeypatch.setattr(recording, "_LAST_DRAIN_SECONDS", seconds)
    left = [a_session() for _ in range(6)]
    for session in left[:3]:
        with SqliteSpool(root) as spool:
            spool.append([session, an_invocation(session, "read")])
    shop.on_try = lambda: wait_until(lambda: recorder._is_closed)
    recorder = spooling(shop, root, timeout_seconds=3600.0, limits=QueueLimits(batch_records=1))
    recorder.start()
    for session in left[3:]:
        recorder.put(session)
    counts = recorder.close(timeout=SOON)
    assert counts.dropped == 0
    assert (counts.stored == 9) is (seconds > 0)
    assert counts.stored + counts.spooled == 9 if seconds else counts.spooled > 0


def test_the_end_does_not_wait_for_a_store_that_hangs_and_keeps_what_hangs_with_it(shop, root):
    session = a_session()
    calls = calls_of(session, 20)
    shop.gate.clear()
    recorder = spooling(shop, root, timeout_seconds=3600.0)
    recorder.start()
    put(recorder, calls)
    assert shop.tried.wait(SOON)
    counts = recorder.close(timeout=0.05)
    assert (counts.stored, counts.queued, counts.spooled) == (0, 0, 20)
    shop.gate.set()  # the store took them after all
    wait_until(lambda: recorder._given is None)
    assert (recorder.counts().stored, recorder.counts().spooled) == (0, 20)
    with spooling(shop, root) as after:
        wait_until(lambda: after.counts().stored == 20)
    assert list(shop.list_invocations(session.id)) == calls


def test_the_end_waits_for_a_slow_store_to_take_what_is_spooled(shop, root, monkeypatch):
    monkeypatch.setattr(recording, "_LAST_DRAIN_SECONDS", SOON)
    pause = threading.Event()
    shop.on_try = lambda: pause.wait(0.1)
    recorder = spooling(shop, root, limits=QueueLimits(batch_records=20))
    recorder.start()
    put(recorder, [a_session() for _ in range(100)])
    wait_until(lambda: recorder.counts().spooled > 0)
    counts = recorder.close(timeout=SOON)
    assert (counts.stored, counts.spooled) == (100, 0)
    assert list(root.iterdir()) == []


def test_the_end_waits_for_a_store_that_is_still_being_opened(shop, root, monkeypatch):
    monkeypatch.setattr(recording, "_LAST_DRAIN_SECONDS", 0.0)
    ended = threading.Event()

    def open_store():
        wait_until(lambda: recorder.counts().spooled == 1 and recorder._is_closed)
        ended.wait(0.2)  # longer than the end takes that waits for nothing
        monkeypatch.setattr(recording, "_LAST_DRAIN_SECONDS", SOON)
        return shop

    recorder = Eager(open_store, open_spool=lambda: SqliteSpool(root), timeout_seconds=IMPATIENT)
    recorder.start()
    recorder.put(a_session())
    counts = recorder.close(timeout=SOON)
    assert (counts.stored, counts.spooled) == (1, 0)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("hangs", [False, True])
def test_the_end_takes_what_was_spooled_unless_the_store_hangs_and_then_it_stays(shop, root, hangs):
    with SqliteSpool(root) as left:
        left.append([a_session() for _ in range(10)])
    recorder = spooling(shop, root, timeout_seconds=3600.0)
    shop.gate.clear()
    recorder.start()
    assert shop.tried.wait(SOON)
    if not hangs:
        shop.on_try = lambda: wait_until(lambda: recorder._is_closed)
        shop.gate.set()
    counts = recorder.close(timeout=0.05 if hangs else SOON)
    shop.gate.set()  # a store that hung took them after all
    wait_until(lambda: recorder._given is None)
    for told in (counts, recorder.counts()):
        assert (told.stored, told.spooled) == ((0, 10) if hangs else (10, 0))
    assert len(list(root.glob("*.db"))) == hangs


def test_what_can_be_kept_nowhere_at_the_end_is_counted_as_lost(shop, root, caplog):
    shelf = Shelf(root)
    shelf.fails = shop.away = True
    recorder = spooling(shop, root, shelf=shelf, limits=QueueLimits(batch_records=2))
    recorder.start()
    put(recorder, [a_session() for _ in range(5)])
    counts = recorder.close(timeout=0.05)
    assert (counts.queued, counts.spooled, counts.reasons["closed"]) == (0, 0, 5)
    assert "5 records could not be stored before the end and are lost" in caplog.text


def test_a_record_that_the_store_refuses_is_dropped_from_the_spool_too(shop, root):
    bad = an_invocation(a_session(), "bad")
    shop.refuses = lambda record: getattr(record, "id", None) == bad.id
    shop.away = True
    with spooling(shop, root) as recorder:
        for record in (a_session(), bad, a_session()):
            recorder.put(record)
        assert recorder.flush(SOON)
        shop.away = False
        wait_until(lambda: recorder.counts().stored == 2)
        wait_until(lambda: recorder.counts().reasons["refused"] == 1)
        wait_until(lambda: recorder.counts().spooled == 0)
        assert obeys_the_law(recorder)


class Odd(SqliteSpool):
    """A spool whose disk fails to sync, or to be read."""

    syncs = True
    reads = True

    def sync(self):
        if not self.syncs:
            raise SpoolUnavailableError("the disk does not sync")
        super().sync()

    def read(self, limit):
        if not self.reads:
            for file in self._files:
                file._connection.set_progress_handler(lambda: 1, 1)  # interrupts every query
        return super().read(limit)


def test_a_file_that_cannot_be_read_is_left_to_the_next_start_and_the_rest_is_stored(shop, root, caplog):
    with SqliteSpool(root) as left:
        left.append([a_session()])
    shelf = Odd(root)
    shelf.reads = False
    with spooling(shop, root, shelf=shelf) as recorder:
        wait_until(lambda: "records stay in the spool for the next start" in caplog.text)
        shelf.reads = True
        recorder.put(a_session())
        wait_until(lambda: recorder.counts().stored == 1)
        assert obeys_the_law(recorder)
    assert len(list(root.glob("*.db"))) == 1


class Wreck(SqliteSpool):
    """A spool that fails as nobody foresaw, at the places named in `broken`."""

    def __init__(self, root, *broken):
        super().__init__(root)
        self.broken = set(broken)
        self.failed = threading.Event()

    def _check(self, place):
        if place in self.broken:
            self.failed.set()
            raise OSError(5, "Input/output error")

    def __enter__(self):
        self._check("enter")
        return super().__enter__()

    def append(self, records):
        self._check("append")
        return super().append(records)

    def sync(self):
        self._check("sync")
        super().sync()

    def read(self, limit):
        self._check("read")
        return super().read(limit)

    def remove(self):
        self._check("remove")
        super().remove()


@pytest.mark.parametrize("place", ["enter", "append", "sync", "read", "remove"])
def test_a_spool_that_fails_as_nobody_foresaw_ends_nothing(shop, root, place, caplog):
    shop.away = True
    shelf = Wreck(root, place)
    session = a_session()
    calls = calls_of(session, 40)
    with spooling(shop, root, shelf=shelf) as recorder:
        put(recorder, calls[:20])
        assert recorder.flush(SOON) if place == "remove" else shelf.failed.wait(SOON)
        shop.away = False
        assert shelf.failed.wait(SOON)
        shelf.broken.clear()
        put(recorder, calls[20:])
        wait_until(lambda: recorder.counts().stored >= 40)
        assert obeys_the_law(recorder)
    assert (recorder.counts().stored, recorder.counts().spooled) == (40, 0)
    assert set(shop.list_invocations(session.id)) == set(calls)
    assert "Input/output error" in caplog.text
