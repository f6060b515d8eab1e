"""Maintenance: what is computed from the records and cleared away from time to time, on a thread of its own."""

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from riglm.ports.analytics import AnalyticsPort

MOST_LEARNED_PAIRS: Final = 20_000
"""So many are kept in the store, whoever learned them: several times what one process works with."""

_log: Final = logging.getLogger("riglm.maintenance")


class Maintenance:
    """Refreshes co-occurrence, bounds what was learned, ends sessions left open.

    It does so some time after the start, and then at every interval that stored new records.

    A session whose process was killed has no end: after `idle_gap` seconds without a record the last one is taken for
    it. `stored` tells how many records were stored so far. `delay` and `interval` are in seconds; the first leaves the
    start to the client. The store is opened by this thread for each refresh, and closed again.
    """

    def __init__(
        self,
        open_store: Callable[[], AnalyticsPort],
        stored: Callable[[], int],
        *,
        delay: float = 10.0,
        interval: float = 600.0,
        most_pairs: int = MOST_LEARNED_PAIRS,
        idle_gap: float = 1800.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_store = open_store
        self._stored = stored
        self._delay = delay
        self._interval = interval
        self._most_pairs = most_pairs
        self._idle_gap = idle_gap
        self._clock = clock
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="riglm-maintenance", daemon=True)
        self._seen = -1

    def start(self) -> None:
        """Begin to refresh."""
        self._thread.start()

    def close(self, timeout: float = 0.25) -> None:
        """Stop; wait at most `timeout` seconds for a refresh that is under way. Its end is not needed for anything."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def refresh(self) -> None:
        """Refresh now unless nothing was stored since the last time. Failures are logged; the next time tries again."""
        stored = self._stored()
        if stored == self._seen:
            return
        try:
            with self._open_store() as store:
                self._prune(store)
                ended = store.end_idle_sessions(self._clock() - self._idle_gap)
                pairs = store.refresh_cooccurrences(self._clock())
        except Exception:  # noqa: BLE001  # nothing here may end the thread
            _log.warning("co-occurrence could not be refreshed", exc_info=True)
            return
        self._seen = stored
        _log.debug("co-occurrence refreshed: %d pairs; sessions left open and now ended: %d", pairs, ended)

    def _prune(self, store: AnalyticsPort) -> None:
        try:
            forgotten = store.prune_learned_pairs(self._most_pairs)
        except Exception:  # noqa: BLE001  # what was learned must not hold up what was recorded
            _log.warning("learned pairs could not be pruned", exc_info=True)
        else:
            _log.debug("learned pairs pruned: %d", forgotten)

    def _run(self) -> None:
        pause = self._delay
        while not self._ending.wait(pause):
            self.refresh()
            pause = self._interval
