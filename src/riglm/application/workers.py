"""Answers that riglm makes itself, each in a task of its own."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from riglm.application.exchange import Exchange
from riglm.domain.invocation import ErrorKind

_log: Final = logging.getLogger("riglm.proxy")


class Workers:
    """Runs work for exchanges. Whatever goes wrong in it, the client gets an answer."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._by_exchange: dict[Exchange, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, exchange: Exchange, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Work for an exchange, which has no other work at the time."""
        task = self._started(self._guarded(exchange, work, args))
        self._by_exchange[exchange] = task
        task.add_done_callback(lambda _: self._by_exchange.pop(exchange, None))

    def aside(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Work that nobody waits for."""
        self._started(self._guarded(None, work, args))

    def cancel(self, exchange: Exchange) -> None:
        """Give up the work for an exchange, if there is any."""
        task = self._by_exchange.get(exchange)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Give up everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _started(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(
        self, exchange: Exchange | None, work: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]
    ) -> None:
        try:
            await work(*args)
        except Exception:  # noqa: BLE001  # fails open
            _log.exception("a request failed inside riglm")
            if exchange is not None:
                exchange.failed(ErrorKind.UNKNOWN, "Internal error in riglm: its log says more")
