"""What calls teach of contexts is learned after the calls, in order."""

import asyncio
import contextlib
import logging

import pytest

from riglm.application.prediction.training_queue import MAX_UPDATES, TrainingQueue
from tests.waiting import WAIT_SECONDS


async def all_of(made, count):
    async with asyncio.timeout(WAIT_SECONDS):
        while len(made) < count:
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def worked_off(queue):
    task = asyncio.create_task(queue.work_off())
    await asyncio.sleep(0)
    yield
    task.cancel()


async def test_no_update_is_made_before_the_queue_is_worked_off_and_then_in_order():
    queue, made = TrainingQueue(), []
    for number in range(3):
        queue.add(lambda number=number: made.append(number))
    queue.catch_up()
    assert made == []
    async with worked_off(queue):
        await all_of(made, 3)
        assert made == [0, 1, 2]
        queue.add(lambda: made.append(3))
        assert made == [0, 1, 2]


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, 0.01), (0.003, 0.03), (0.5, 5.0)])
async def test_after_a_long_update_comes_a_longer_pause(seconds, pause, monkeypatch):
    now, pauses, queue, sleep = [0.0], [], TrainingQueue(), asyncio.sleep

    def update():
        now[0] += seconds

    async def slept(delay):
        pauses.append(delay)
        await sleep(0)

    monkeypatch.setattr("riglm.application.prediction.training_queue.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("riglm.application.prediction.training_queue.asyncio.sleep", slept)
    queue.add(update)
    task = asyncio.create_task(queue.work_off())
    while not pauses:
        await sleep(0)
    task.cancel()
    assert pauses == [pytest.approx(pause)]


async def test_of_too_many_updates_none_is_left_out_once_the_queue_is_worked_off():
    queue, made = TrainingQueue(), []
    async with worked_off(queue):
        for number in range(MAX_UPDATES + 3):
            queue.add(lambda number=number: made.append(number))
        assert made == [0, 1, 2]
        queue.close()
        assert made == list(range(MAX_UPDATES + 3))


async def test_updates_that_no_loading_came_for_are_logged(caplog):
    queue, made = TrainingQueue(), []
    with caplog.at_level(logging.WARNING):
        for number in range(MAX_UPDATES + 3):
            queue.add(lambda number=number: made.append(number))
        queue.close()
    assert made == []
    assert "calls taught nothing of their contexts" in caplog.text
