"""Answers that riglm makes itself, each in a task of its own."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from riglm.application.forwarding.exchange import Exchange
from riglm.domain.invocation import ErrorKind

_log: Final = logging.getLogger("riglm.proxy")


class Workers:
    """Runs work for exchanges. Whatever goes wrong in it, the client gets an answer."""

    def __init__(self) -> None:
        self._tasks: dict[Exchange, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, exchange: Exchange, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Work for an exchange, which has no other work at the time."""
        task = asyncio.get_running_loop().create_task(self._guarded(exchange, work, args))
        self._tasks[exchange] = task
        task.add_done_callback(lambda _: self._tasks.pop(exchange, None))

    def cancel(self, exchange: Exchange) -> None:
        """Give up the work for an exchange, if there is any."""
        task = self._tasks.get(exchange)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Give up everything, and come back when it has ended."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _guarded(
        self, exchange: Exchange, work: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]
    ) -> None:
        try:
            await work(*args)
        except Exception:  # noqa: BLE001  # fails open
            _log.exception("a request failed inside riglm")
            exchange.failed(ErrorKind.UNKNOWN, "Internal error in riglm: its log says more")
