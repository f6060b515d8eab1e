"""Notifies clients of tool lists that changed with overrides or with the rules."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from riglm.application.failing_open import FailingOpen
from riglm.domain.session import Session

if TYPE_CHECKING:
    from riglm.application.filtering.filtering_service import FilteringService

_log: Final = logging.getLogger("riglm.proxy")


class ListHolder(Protocol):
    """A client's connection, or the subscriptions of modern clients."""

    def notify_changed(self, has_changed: Callable[[Session], bool]) -> None:
        """Notify the clients of sessions whose list has changed."""


class ListChanges:
    """Notifies all clients whose list differs from the one that they have."""

    def __init__(self, filtering: "FilteringService") -> None:
        self._filtering = filtering
        self._holders: dict[ListHolder, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_pending = False
        self._is_closed = False
        self._guarded = FailingOpen(_log, "clients could not be notified of changed lists, and")

    def add(self, holder: ListHolder) -> None:
        """Notify a holder of lists from now on."""
        self._holders[holder] = None

    def remove(self, holder: ListHolder) -> None:
        """Notify a holder of lists no more."""
        self._holders.pop(holder, None)

    def overrides_changed(self) -> None:
        """Notify the clients whose list changed with the overrides."""
        self._start(self.notify_of_overrides())

    async def notify_of_overrides(self) -> None:
        """Notify the clients whose list changed with the overrides, and wait until that is done."""
        await self._notify(self._filtering.overridden)

    def rules_changed(self) -> None:
        """Notify the clients whose list changed with the rules, once for changes that are close together."""
        if not self._is_pending and not self._is_closed:
            self._is_pending = True
            self._start(self.notify_of_rules())

    async def notify_of_rules(self) -> None:
        """Notify the clients whose list changed with the rules, and wait until that is done."""
        self._is_pending = False
        await self._notify(self._filtering.reconfigured)

    async def close(self) -> None:
        """Notify no client any more."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _notify(self, has_changed: Callable[[Session], bool]) -> None:
        """Notify all holders one by one, and yield to the event loop in between."""
        for holder in list(self._holders):
            if holder in self._holders:
                with self._guarded:
                    holder.notify_changed(has_changed)
                await asyncio.sleep(0)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
