"""Counters that the event loop writes and any thread reads: cheaper than those that every thread may write."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import inf

from prometheus_client.metrics_core import HistogramMetricFamily

from riglm.domain.exposure import Exposure
from riglm.domain.invocation import ErrorKind, Found
from riglm.domain.session_cost import Cost


class Tally:
    """How many values fell into which bucket, and their sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Buckets up to and with each bound, ascending, and one for what is larger."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def expose(self, family: HistogramMetricFamily, labels: Sequence[str] = ()) -> None:
        """Add the counts to a family, as cumulative buckets."""
        counts, total = list(self._counts), self._sum
        family.add_metric(labels, list(_cumulative(self._bounds, counts)), total)


class CallTally:
    """The calls of one server."""

    __slots__ = ("duration", "ends", "held")

    def __init__(self, duration: Sequence[float], held: Sequence[float]) -> None:
        """`duration` and `held` are the bounds of the buckets."""
        self.ends: dict[tuple[Found, ErrorKind | None], int] = {(found, None): 0 for found in Found}
        self.duration = Tally(duration)
        self.held = Tally(held)

    @property
    def is_used(self) -> bool:
        """Whether any call was counted."""
        return any(self.ends.values())

    def add(self, found: Found, error_kind: ErrorKind | None, seconds: float) -> None:
        """Count a call."""
        key = (found, error_kind)
        self.ends[key] = self.ends.get(key, 0) + 1
        self.duration.add(seconds)


class ShownTally:
    """What the lists of one mode came to, how the tools were found that were used with them, and what sessions cost."""

    __slots__ = ("available", "changes", "cost", "found", "hidden", "own", "resent", "shown", "tools")

    def __init__(self, tools: Sequence[float]) -> None:
        """`tools` are the bounds of the buckets for numbers of tools."""
        self.tools = Tally(tools)
        self.available = Tally(tools)
        self.found = dict.fromkeys(Found, 0)
        self.changes = 0
        self.shown = 0
        self.hidden = 0
        self.own = 0
        self.resent = 0
        self.cost = Cost()

    def add(self, exposure: Exposure, *, changed: bool) -> None:
        """Count what was shown."""
        if not exposure.is_list:
            self.own += exposure.tokens_shown
            return
        self.tools.add(len(exposure.shown))
        self.available.add(len(exposure.shown) + len(exposure.hidden))
        self.shown += exposure.tokens_shown
        self.hidden += exposure.tokens_hidden
        self.own += exposure.tokens_own
        if changed:
            self.changes += 1
            self.resent += exposure.tokens_shown


def _cumulative(bounds: Sequence[float], counts: Sequence[int]) -> Iterator[tuple[str, float]]:
    so_far = 0
    for bound, count in zip((*bounds, inf), counts, strict=True):
        so_far += count
        yield "+Inf" if bound == inf else repr(bound), so_far
