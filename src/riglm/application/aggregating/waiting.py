"""Waits for servers, each with a separate timeout."""

import asyncio
from collections.abc import Mapping
from typing import Any


async def wait_for_each(timeouts: Mapping["asyncio.Task[Any]", float]) -> None:
    """Wait until every task is done or its timeout, in seconds, is over. No task is cancelled."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        passed = loop.time() - began
        left = {task: seconds - passed for task, seconds in timeouts.items() if not task.done() and seconds > passed}
        if not left:
            return
        await asyncio.wait(left, timeout=max(left.values()), return_when=asyncio.FIRST_COMPLETED)
