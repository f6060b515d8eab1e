"""What happened over time."""

import time
from collections.abc import Callable
from typing import Final

from riglm.application.control.counting import Counting
from riglm.domain.control import MOST_BUCKETS, Bucket, Fault, Invalid
from riglm.ports.analytics import AnalyticsPort
from riglm.ports.overview import Usage

_DAY: Final = 86_400.0


class History:
    """Cuts time into pieces, and counts what happened in each."""

    def __init__(self, counting: Counting, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since the epoch."""
        self._counting = counting
        self._clock = clock

    async def buckets(
        self, *, since: float | None, until: float | None, count: int, tool: str | None = None
    ) -> tuple[Bucket, ...]:
        """What happened from `since` until `until`; by default until now, and for a day.

        A time without length has no buckets. With `tool`, only its calls count.

        Raises:
            Invalid: there are too many buckets.
        """
        end = self._clock() if until is None else until
        start = max(end - _DAY, 0.0) if since is None else since
        if not start < end:  # so that what is no number has none as well
            return ()
        if not 1 <= count <= MOST_BUCKETS:
            raise Invalid(Fault(path="buckets", detail=f"there may be 1 to {MOST_BUCKETS}"))
        seconds = (end - start) / count

        def counted(store: AnalyticsPort) -> tuple[Bucket, ...]:
            usage = store.usage(start, end, count, tool)
            return tuple(_bucket(start + number * seconds, seconds, each) for number, each in enumerate(usage))

        return await self._counting.counted(("history", since, until, count, tool), counted)


def mean(total: int, count: int) -> float | None:
    """The mean of so many; None of none."""
    return total / count if count else None


def _bucket(at: float, seconds: float, usage: Usage) -> Bucket:
    return Bucket(
        at=at,
        seconds=seconds,
        calls=usage.calls,
        failures=usage.failures,
        listed=usage.listed,
        searched=usage.searched,
        named=usage.named,
        lists=usage.lists,
        mean_shown=mean(usage.tools_shown, usage.lists),
        mean_available=mean(usage.tools_available, usage.lists),
    )
