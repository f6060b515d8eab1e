"""Which tools are used together, computed anew while somebody looks."""

import time
from collections.abc import Callable
from typing import Final

from riglm.ports.analytics import AnalyticsPort

FRESH_SECONDS: Final = 30.0
"""So old it may be; maintenance lets it become much older, since nothing else waits for it."""

_SHARE: Final = 100.0  # it is computed again after so many times what it took


class Company:
    """Has co-occurrence refreshed, no more often than that is worth."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since the epoch."""
        self._clock = clock
        self._tried_at = 0.0
        self._pause = FRESH_SECONDS

    def refresh(self, store: AnalyticsPort) -> None:
        """Compute it anew if it is old, and if nobody else looks after the store; blocks."""
        now = self._clock()
        if now - max(store.latest_refresh(), self._tried_at) < self._pause:
            return
        self._tried_at = now
        with store.maintenance_lease() as mine:
            if mine:
                began = time.monotonic()
                store.refresh_cooccurrences(now)
                self._pause = max(FRESH_SECONDS, _SHARE * (time.monotonic() - began))
