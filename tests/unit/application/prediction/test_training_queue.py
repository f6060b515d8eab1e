"""What calls teach of contexts is learned after the calls, in order."""

import asyncio
import contextlib
import logging

from riglm.application.prediction.prediction_service import MAX_UPDATES, TrainingQueue


@contextlib.asynccontextmanager
async def worked_off(queue):
    task = asyncio.create_task(queue.work_off())
    await asyncio.sleep(0)
    yield
    task.cancel()


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
