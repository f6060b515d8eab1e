"""Identifiers sort by birth, also when the clock does not move, or moves back."""

import threading
import time
import uuid

from riglm.domain import session
from riglm.domain.session import uuid7
from tests.waiting import WAIT_SECONDS


def test_an_identifier_is_a_uuid_of_version_7_that_tells_its_time():
    before = time.time_ns() // 1_000_000
    made = uuid7()
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before <= made.int >> 80 <= before + 60_000


def test_identifiers_made_by_many_threads_are_distinct_and_ascend_in_each():
    made = [[] for _ in range(4)]

    def make(mine):
        mine += [uuid7() for _ in range(5000)]

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert all(mine == sorted(mine) for mine in made)
    assert len({each for mine in made for each in mine}) == 20_000


def test_identifiers_ascend_when_the_clock_stands_still_or_steps_back(monkeypatch):
    now = time.time_ns()
    ticks = iter([now] * 5000 + [now - 10**12] * 100)
    monkeypatch.setattr(session.time, "time_ns", lambda: next(ticks))
    made = [uuid7() for _ in range(5100)]
    assert made == sorted(set(made))
