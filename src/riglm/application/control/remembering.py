"""Answers that are kept for a moment, so that several who ask the same cost no more than one."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from riglm.application.control.crossing import PATIENCE_SECONDS
from riglm.domain.control import ControlUnavailable

KEPT_SECONDS: Final = 2.0
"""So long an answer is given again."""

SHARE: Final = 0.03
"""So much of a core all questions that are asked again and again cost together, at most."""

_LATELY_SECONDS: Final = 60.0
_MOST_KEPT: Final = 64
_Answer = TypeVar("_Answer")


@dataclass(slots=True)
class _Kept:
    asking: asyncio.Task[Any] | None = None
    answer: Any = None
    answered_at: float = float("-inf")
    asked_at: float = float("-inf")
    took: float = 0.0
    is_there: bool = False


class Remembering:
    """Asks a question once for all who ask it at the same time or soon after; used on one event loop.

    The more work the questions of the last minute are, the longer all their answers are kept, so that looking on costs
    no more than `SHARE`. An answer that takes longer than `patience` seconds is waited for no longer: an older one is
    given, if there is any. It is there for whoever asks when it has come.
    """

    def __init__(
        self,
        *,
        kept: float = KEPT_SECONDS,
        patience: float = PATIENCE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = kept
        self._patience = patience
        self._monotonic = monotonic
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[tuple[_Answer, float]]]) -> _Answer:
        """The answer to the question that `key` stands for, which comes with the seconds of work that it was.

        Raises:
            ControlUnavailable: it takes too long, and there is no older one; or what the question raises.
        """
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        kept.asked_at = now = self._monotonic()
        if now < kept.answered_at + self._keeps(now):
            return cast("_Answer", kept.answer)
        if kept.asking is None:
            kept.asking = asyncio.get_running_loop().create_task(self._asked(kept, question))
            kept.asking.add_done_callback(_noticed)
        asking = kept.asking
        await asyncio.wait({asking}, timeout=self._patience)
        if asking.done():
            return cast("_Answer", asking.result())
        if kept.is_there:
            return cast("_Answer", kept.answer)
        raise ControlUnavailable("this takes a while to count: ask again in a moment")

    def _keeps(self, now: float) -> float:
        """How many seconds answers are given again now."""
        work = sum(each.took for each in self._kept.values() if now - each.asked_at < _LATELY_SECONDS)
        return max(self._seconds, work / SHARE)

    async def _asked(self, kept: _Kept, question: Callable[[], Awaitable[tuple[_Answer, float]]]) -> _Answer:
        try:
            answer, kept.took = await question()
        finally:
            kept.asking = None
        kept.answer, kept.is_there = answer, True
        kept.answered_at = self._monotonic()
        return answer


def _noticed(asking: asyncio.Task[Any]) -> None:
    if not asking.cancelled():
        asking.exception()  # whoever still waits is told; if nobody does, that is no fault
