"""Asks the knowledge store, on a thread of its own."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from riglm.application.knowledge.retrieval import Store
from riglm.application.worker import Worker
from riglm.domain.errors import AnalyticsUnavailable
from riglm.domain.knowledge.pieces import Candidate, Embedding
from riglm.domain.knowledge.provenance import Table
from riglm.ports.knowledge import KnowledgePort, Scope

_CLOSING_SECONDS: Final = 1.0
_Answer = TypeVar("_Answer")


class StoreAside(Store):
    """Opens the store at the first question, and keeps it open; what cannot be opened is tried again at the next."""

    def __init__(self, open_store: Callable[[], KnowledgePort], *, seconds: float) -> None:
        """`open_store` makes a store that is not open yet; nobody waits longer than `seconds` for an answer."""
        self._open_store = open_store
        self._seconds = seconds
        self._worker: Worker | None = None
        self._store: KnowledgePort | None = None

    async def nearest(self, table: Table, asked: Embedding, scope: Scope, most: int) -> list[Candidate]:
        """As `KnowledgePort.nearest`."""
        return await self._done(lambda: list(self._opened().nearest(table, asked, scope, most)))

    async def close(self) -> None:
        """Close the store, as far as there is time."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await asyncio.wait({asyncio.wrap_future(worker.submit(self._closed))}, timeout=_CLOSING_SECONDS)
            worker.stop()

    async def _done(self, job: Callable[[], _Answer]) -> _Answer:
        if self._worker is None:
            self._worker = Worker("riglm-knowledge")
            self._worker.start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._worker.submit(job)), self._seconds)
        except TimeoutError:
            raise AnalyticsUnavailable("the knowledge store does not answer in time") from None

    def _opened(self) -> KnowledgePort:
        if self._store is None:
            store = self._open_store()
            self._store = store.__enter__()
        return self._store

    def _closed(self) -> None:
        if self._store is not None:
            self._store.__exit__(None, None, None)
            self._store = None
