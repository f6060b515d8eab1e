"""What is counted in the store, once for all who look on."""

import time
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from riglm.application.control.crossing import StoreThread
from riglm.application.control.remembering import Remembering
from riglm.ports.analytics import AnalyticsPort

COUNTING_SECONDS: Final = 60.0
"""Counting may take so long; who asks gets the answer when it is there."""

_Answer = TypeVar("_Answer")


class Counting:
    """Asks the store what takes a while to answer, and keeps each answer for a moment."""

    def __init__(self, store: StoreThread) -> None:
        self._store = store
        self._remembering = Remembering()

    async def counted(self, key: Hashable, question: Callable[[AnalyticsPort], _Answer]) -> _Answer:
        """The answer to the question that `key` stands for.

        Raises:
            ControlUnavailable: the store is away, or takes too long.
        """

        def timed(store: AnalyticsPort) -> tuple[_Answer, float]:
            began = time.monotonic()
            return question(store), time.monotonic() - began

        return await self._remembering.ask(key, lambda: self._store.ask(timed))
