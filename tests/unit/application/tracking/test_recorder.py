"""The recorder: nothing waits for it, nothing is lost or counted wrongly."""

import logging
import threading

import pytest

from riglm.adapters.spool.sqlite_spool import SqliteSpool
from riglm.application.tracking.recorder import Backoff, QueueLimits, Recorder
from riglm.domain.errors import AnalyticsUnavailableError
from tests.contracts.analytics_contract import a_session, an_invocation
from tests.stores.memory import InMemoryAnalytics
from tests.unit.application.tracking.shop import SOON, Eager, Shop, obeys_the_law
from tests.waiting import wait_until


@pytest.fixture
def shop():
    return Shop()


def test_records_are_stored_in_the_order_in_which_they_were_put(shop):
    session = a_session()
    calls = [an_invocation(session, "read") for _ in range(2000)]
    with Eager(lambda: shop) as recorder:
        for call in calls:
            recorder.put(call)
        assert recorder.flush(SOON)
    assert [record for batch in shop.batches for record in batch] == calls


def test_no_batch_is_larger_than_its_limit(shop):
    session = a_session()
    recorder = Eager(lambda: shop, limits=QueueLimits(batch_records=7))
    for _ in range(20):
        recorder.put(an_invocation(session, "read"))
    with recorder:
        assert recorder.flush(SOON)
    assert [len(batch) for batch in shop.batches] == [7, 7, 6]


def test_a_disk_with_little_space_gets_as_much_at_once_as_it_takes():
    class Cramped(InMemoryAnalytics):
        def record_many(self, records):
            sizes.append(len(records))
            if len(records) > 3:
                raise AnalyticsUnavailableError("the disk is full")
            super().record_many(records)

    sizes, session = [], a_session()
    recorder = Eager(Cramped, backoff=Backoff(first=0.0, longest=0.0))
    for _ in range(10):
        recorder.put(an_invocation(session, "read"))
    with recorder:
        wait_until(lambda: recorder.counts().stored == 10)
    assert sizes[:3] == [10, 5, 2]


def test_closing_stores_what_is_queued_and_closes_the_store(shop):
    recorder = Recorder(lambda: shop, head_start=3600.0)
    recorder.start()
    for _ in range(1200):
        recorder.put(a_session())
    counts = recorder.close()
    assert (counts.stored, counts.queued, counts.dropped) == (1200, 0, 0)
    assert shop.closed == 1


def test_what_is_put_after_closing_is_counted_as_dropped(shop):
    recorder = Eager(lambda: shop)
    recorder.start()
    recorder.close()
    recorder.put(a_session())
    assert recorder.counts().reasons == {"full": 0, "refused": 0, "damaged": 0, "closed": 1}
    assert obeys_the_law(recorder)


def test_closing_does_not_wait_for_a_store_that_is_away(shop, caplog):
    shop.away = True
    recorder = Eager(lambda: shop, backoff=Backoff(first=3600.0, longest=3600.0), close_timeout=3600.0)
    recorder.start()
    recorder.put(a_session())
    wait_until(lambda: shop.closed == 1)
    assert recorder.close().stored == 0
    assert "1 records could not be stored before the end and are lost" in caplog.text


def test_a_store_that_hangs_does_not_hold_up_the_end(shop):
    shop.gate.clear()
    recorder = Eager(lambda: shop, limits=QueueLimits(batch_records=1))
    recorder.start()
    recorder.put(a_session())
    recorder.put(a_session())
    assert shop.tried.wait(SOON)
    counts = recorder.close(timeout=0.0)
    assert (counts.stored, counts.queued + counts.dropped) == (0, 2)
    shop.gate.set()
    wait_until(lambda: recorder.counts().queued == 0)
    assert obeys_the_law(recorder)


def test_records_wait_while_the_store_is_away_and_are_stored_when_it_is_back(shop, caplog):
    shop.away = True
    session = a_session()
    calls = [an_invocation(session, "read") for _ in range(30)]
    with caplog.at_level(logging.INFO, "riglm.recorder"), Eager(lambda: shop) as recorder:
        for call in calls:
            recorder.put(call)
        wait_until(lambda: shop.tries >= 5)
        assert recorder.counts().queued == 30
        shop.away = False
        assert recorder.flush(SOON)
        assert recorder.counts().dropped == 0
    assert list(shop.list_invocations(session.id)) == calls
    assert shop.opened == shop.closed > 1
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == "records wait because the store is unavailable: the shop is shut"
    assert messages[1].startswith("the store is back after")
    assert messages[2:] == ["recording ended"]


def test_a_store_that_cannot_be_opened_is_tried_again():
    shop = Shop()
    failures = [ImportError("no driver"), AnalyticsUnavailableError("no file")]

    def open_store():
        if failures:
            raise failures.pop()
        return shop

    with Eager(open_store) as recorder:
        recorder.put(a_session())
        assert recorder.flush(SOON)
        assert recorder.counts().stored == 1


def test_the_newest_are_dropped_when_too_many_records_wait(shop, caplog):
    shop.gate.clear()
    session = a_session()
    calls = [an_invocation(session, "read") for _ in range(8)]
    with Eager(lambda: shop, limits=QueueLimits(records=5, batch_records=2)) as recorder:
        for call in calls[:2]:
            recorder.put(call)
        assert shop.tried.wait(SOON)
        for call in calls[2:]:
            recorder.put(call)
        assert recorder.counts().reasons["full"] == 3
        assert obeys_the_law(recorder)
        shop.gate.set()
        assert recorder.flush(SOON)
        wait_until(lambda: "3 records were dropped so far" in caplog.text)
    assert list(shop.list_invocations(session.id)) == calls[:5]


def test_records_are_dropped_when_too_many_bytes_wait(shop):
    recorder = Eager(lambda: shop, limits=QueueLimits(size_bytes=1000))
    for size in (600, 600, 400):
        recorder.put(a_session(), size)
    assert recorder.counts().reasons["full"] == 1
    with recorder:
        assert recorder.flush(SOON)
        recorder.put(a_session(), 1000)
        assert recorder.flush(SOON)
        assert recorder.counts().stored == 3


@pytest.mark.parametrize("bad", [{0}, {7}, {3, 4, 9}, set(range(10))])
def test_records_that_the_store_refuses_do_not_hold_up_the_others(shop, caplog, bad):
    session = a_session()
    calls = [an_invocation(session, "read") for _ in range(10)]
    refused = {calls[number].id for number in bad}
    shop.refuses = lambda record: record.id in refused
    with Eager(lambda: shop) as recorder:
        for call in calls:
            recorder.put(call)
        assert recorder.flush(SOON)
        counts = recorder.counts()
    assert (counts.stored, counts.reasons["refused"]) == (10 - len(bad), len(bad))
    assert list(shop.list_invocations(session.id)) == [call for call in calls if call.id not in refused]
    assert caplog.text.count("the store refuses a record") == 1


def test_a_record_that_cannot_be_made_does_not_hold_up_the_others(shop, caplog):
    class Broken:
        def __call__(self):
            raise RuntimeError("broken note")

    with Eager(lambda: shop) as recorder:
        recorder.put(Broken())
        recorder.put(a_session())
        assert recorder.flush(SOON)
        recorder.put(Broken())
        assert recorder.flush(SOON)
        counts = recorder.counts()
    assert (counts.stored, counts.reasons["refused"]) == (1, 2)
    assert "a record could not be made" in caplog.text


def test_a_store_that_goes_away_while_a_batch_is_narrowed_down_loses_and_doubles_nothing(shop):
    session = a_session()
    calls = [an_invocation(session, "read") for _ in range(8)]
    bad = calls[5].id
    shop.refuses = lambda record: record.id == bad

    def away_every_other_time():
        shop.away = shop.tries % 2 == 0

    shop.on_try = away_every_other_time
    with Eager(lambda: shop) as recorder:
        for call in calls:
            recorder.put(call)
        assert recorder.flush(SOON)
        counts = recorder.counts()
    assert (counts.stored, counts.reasons["refused"]) == (7, 1)
    assert [record.id for batch in shop.batches for record in batch] == [each.id for each in calls if each.id != bad]


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_recorder_whose_threads_are_not_allowed_fails_where_it_is_started(shop, tmp_path, monkeypatch, allowed):
    start, started = threading.Thread.start, []

    def refuse(thread):
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    recorder = Recorder(lambda: shop, open_spool=lambda: SqliteSpool(tmp_path))
    with pytest.raises(RuntimeError, match="new thread"):
        recorder.start()
    assert len(started) == allowed
