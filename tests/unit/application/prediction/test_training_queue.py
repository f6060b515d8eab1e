"""Lessons are learned after the calls, in order, and never take more than their share."""

import asyncio

import pytest

from riglm.application.prediction.training_queue import MAX_PAIR_UPDATES, MAX_UPDATES, TrainingQueue
from tests.waiting import WAIT_SECONDS


async def all_of(learned, count):
    async with asyncio.timeout(WAIT_SECONDS):
        while len(learned) < count:
            await asyncio.sleep(0)


async def test_nothing_is_learned_before_it_has_begun_and_then_in_order():
    training_queue, learned = TrainingQueue(), []
    for number in range(3):
        training_queue.add(lambda number=number: learned.append(number))
    await asyncio.sleep(0.03)
    assert learned == []
    training_queue.begin()
    await all_of(learned, 3)
    assert learned == [0, 1, 2]


async def test_a_call_does_not_wait_for_what_it_teaches():
    training_queue, learned = TrainingQueue(), []
    training_queue.begin()
    training_queue.add(lambda: learned.append(1))
    assert learned == []


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, 0.01), (0.003, 0.03), (0.5, 5.0)])
async def test_after_a_long_lesson_comes_a_longer_pause(seconds, pause, monkeypatch):
    now, timers = [0.0], []

    def training_update():
        now[0] += seconds

    def call_later(delay, function):
        timers.append((delay, function))
        return object()

    training_queue = TrainingQueue(clock=lambda: now[0])
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    training_queue.begin()
    training_queue.add(training_update)
    training_queue.add(training_update)
    timers.pop()[1]()
    assert [delay for delay, _ in timers] == [pytest.approx(pause)]


class Time:
    """Time that passes when it is told to, with the one timer that lessons have."""

    def __init__(self):
        self.now = 0.0
        self.timer = None

    def call_later(self, delay, function):
        self.timer = (self.now + delay, function)
        return object()

    def passes(self, seconds):
        until = self.now + seconds
        while self.timer is not None and self.timer[0] <= until:
            (self.now, function), self.timer = self.timer, None
            function()
        self.now = max(self.now, until)


async def test_lessons_wait_longer_while_calls_follow_each_other(monkeypatch):
    time, learned = Time(), []

    def training_update():
        time.now += 0.002
        learned.append(time.now)

    training_queue = TrainingQueue(clock=lambda: time.now)
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", time.call_later)
    training_queue.begin()
    for _ in range(200):
        training_queue.add(training_update)
        time.passes(0.005)
    assert 0.01 < 0.002 * len(learned) / time.now < 0.03
    time.passes(0.03 * 200)
    assert len(learned) == 200


async def test_of_what_comes_faster_than_it_can_be_learned_the_gist_is_learned_and_comes_first():
    training_queue, learned = TrainingQueue(), []
    for number in range(MAX_UPDATES + 5):
        training_queue.add(lambda number=number: learned.append(number), lambda number=number: learned.append(-number))
    assert len(training_queue) == MAX_UPDATES + 5
    training_queue.begin()
    await all_of(learned, 6)
    gists, first = learned[:5], learned[5]
    assert all(number <= 0 for number in gists)
    assert first == min(set(range(MAX_UPDATES + 5)) - {-number for number in gists})


async def test_under_load_a_fair_sample_is_learned_in_order():
    training_queue, learned = TrainingQueue(), []
    calls = 10 * MAX_UPDATES
    for number in range(calls):
        training_queue.add(lambda number=number: learned.append(number))
    training_queue.begin()
    training_queue.catch_up()
    assert len(learned) == MAX_UPDATES
    assert learned == sorted(learned)
    assert calls * 0.4 < sum(learned) / len(learned) < calls * 0.6


async def test_no_gist_is_ever_left_out_once_learning_has_begun():
    training_queue, learned = TrainingQueue(), []
    training_queue.begin()
    for number in range(MAX_PAIR_UPDATES + 5):
        training_queue.add_gist(lambda number=number: learned.append(number))
    assert len(training_queue) == MAX_PAIR_UPDATES
    training_queue.finish(0.0)
    assert sorted(learned) == list(range(MAX_PAIR_UPDATES + 5))


async def test_the_end_learns_the_gist_of_what_it_has_no_time_for():
    now, learned = [0.0], []

    def training_update(name):
        now[0] += 0.2
        learned.append(name)

    training_queue = TrainingQueue(clock=lambda: now[0])
    training_queue.begin()
    for number in range(5):
        training_queue.add(
            lambda number=number: training_update(f"whole {number}"),
            lambda number=number: training_update(f"gist {number}"),
        )
    training_queue.add(lambda: training_update("whole without a gist"))
    training_queue.add_gist(lambda: training_update("a gist"))
    training_queue.finish(0.5)
    assert learned == ["a gist", "whole 0", "whole 1", "gist 2", "gist 3", "gist 4"]
    assert len(training_queue) == 0


async def test_what_was_never_begun_is_not_learned_at_the_end_and_told(caplog):
    training_queue, learned = TrainingQueue(), []
    training_queue.add(lambda: learned.append(1), lambda: learned.append(2))
    training_queue.add_gist(lambda: learned.append(3))
    training_queue.finish(1.0)
    assert learned == []
    assert "2 training examples were left out" in caplog.text


async def test_what_is_left_out_is_told_once_a_minute_with_its_number(caplog):
    now = [0.0]
    training_queue = TrainingQueue(clock=lambda: now[0])
    for _ in range(MAX_UPDATES + 3):
        training_queue.add(lambda: None)
    now[0] = 61.0
    training_queue.add(lambda: None)
    assert [record.args for record in caplog.records] == [(1,), (3,)]


async def test_whoever_has_time_for_it_has_all_learned_at_once_and_in_order():
    training_queue, learned = TrainingQueue(), []
    for number in range(3):
        training_queue.add(lambda number=number: learned.append(number))
    training_queue.catch_up()
    assert learned == []  # what earlier runs taught comes first
    training_queue.begin()
    training_queue.catch_up()
    assert learned == [0, 1, 2]
    training_queue.add(lambda: learned.append(3))
    await all_of(learned, 4)  # the pause that had begun goes on
    assert learned == [0, 1, 2, 3]
