"""Each server has a timeout of its own."""

import asyncio

from riglm.application.aggregation.merged_lists import wait_for_each
from tests.waiting import WAIT_SECONDS


async def test_a_task_is_not_waited_for_beyond_its_own_timeout():
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    hung, slow = loop.create_task(asyncio.sleep(3600.0)), loop.create_task(asyncio.wait_for(answer, None))
    waiting = loop.create_task(wait_for_each({hung: 0.01, slow: 3600.0}))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    answer.set_result(None)
    async with asyncio.timeout(WAIT_SECONDS):
        await waiting
    assert not hung.done()
    hung.cancel()


async def test_nothing_is_waited_for_when_no_time_is_left():
    hung = asyncio.get_running_loop().create_task(asyncio.sleep(3600.0))
    async with asyncio.timeout(WAIT_SECONDS):
        await wait_for_each({hung: 0.0})
    hung.cancel()
