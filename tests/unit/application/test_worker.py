"""The worker does the most urgent job first."""

import threading

import pytest

from riglm.application.worker import Urgency, Worker
from tests.waiting import WAIT_SECONDS


def test_jobs_are_done_the_most_urgent_first_and_in_order_among_equals():
    worker, done = Worker(), []
    for urgency, name in [
        (Urgency.BACKGROUND, "late"),
        (Urgency.SOON, "first"),
        (Urgency.AWAITED, "now"),
        (Urgency.SOON, "second"),
    ]:
        last = worker.submit(lambda name=name: done.append(name), urgency)
    with worker:
        worker.submit(lambda: None, Urgency.BACKGROUND).result(5)
    assert last.done()
    assert done == ["now", "first", "second", "late"]


def test_a_job_that_fails_tells_who_waits_and_the_next_one_is_done():
    with Worker() as worker:
        failing = worker.submit(lambda: 1 // 0)
        assert worker.submit(lambda: "next").result(5) == "next"
        with pytest.raises(ZeroDivisionError):
            failing.result(5)


def test_what_was_not_begun_at_the_end_is_cancelled():
    begun, go = threading.Event(), threading.Event()
    worker = Worker()
    worker.start()
    running = worker.submit(lambda: (begun.set(), go.wait(WAIT_SECONDS)))
    waiting = worker.submit(lambda: "never")
    assert begun.wait(WAIT_SECONDS)
    worker.close(timeout=0)
    go.set()
    assert running.result(5)
    assert waiting.cancelled()
    assert worker.submit(lambda: "too late").cancelled()
